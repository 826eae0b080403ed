//! `syncline-lab flash`: the simulator in real time, power cuts, a kernel file system on it.

use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Instant;

use crate::stopped::ended;
use crate::support;
use crate::support::serving::Serving;
use crate::support::{done, refused, run, scratch};
use syncline_testkit::{Need, e2fsck_clean, e2fsck_preen, require};

fn shell(command: &str) -> bool {
    Command::new("sh").args(["-c", command]).status().unwrap().success()
}

#[test]
fn flash_takes_its_time_and_a_cut_loses_what_was_not_flushed() {
    let test = "flash_takes_its_time_and_a_cut_loses_what_was_not_flushed";
    if !require(test, &[Need::Root, Need::Fuse]) {
        return;
    }
    let (serving, said) = Serving::start(&["--size", "64M"]);
    assert_eq!(said, "");
    let dir = serving.path().to_str().unwrap();
    let file = serving.open();
    let start = Instant::now();
    for n in 0..10_u64 {
        file.write_all_at(&[1; 4096], n * 4096).unwrap();
        file.sync_data().unwrap();
    }
    // One program of 0.89 ms each at least: the profile's figure.
    assert!(start.elapsed().as_micros() > 10 * 890, "{:?}", start.elapsed());
    file.write_all_at(&[2; 4096], 0).unwrap();
    done(&["flash", "cut", dir]);
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, 0).unwrap_err().raw_os_error(), Some(5));
    done(&["flash", "on", dir]);
    file.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, [1], "what was flushed is there, what was not is lost");
    let stats: serde_json::Value = serde_json::from_str(&done(&["flash", "stats", dir])).unwrap();
    assert_eq!((&stats["flushes"], &stats["write_requests"]), (&10.into(), &11.into()));
    assert_eq!(stats["written_bytes"], 11 * 4096);
}

#[test]
fn a_kernel_file_system_survives_a_cut_on_it() {
    let test = "a_kernel_file_system_survives_a_cut_on_it";
    if !require(test, &[Need::Root, Need::Fuse, Need::Loop, Need::E2fsck]) {
        return;
    }
    let (serving, node) = Serving::start(&["--size", "96M", "--attach=loop"]);
    assert!(node.starts_with("/dev/loop"), "{node}");
    let (mnt, dir) = (scratch(), serving.path().to_str().unwrap().to_owned());
    let at = mnt.path().display();
    assert!(shell(&format!("mke2fs -q -t ext4 -E lazy_itable_init=0 {node}")));
    assert!(shell(&format!("mount -t ext4 {node} {at}")));
    assert!(shell(&format!("echo kept > {at}/kept && sync {at}/kept && echo lost > {at}/lost")));
    done(&["flash", "cut", &dir]);
    // The kernel cannot write any more; what it held is gone with the mount.
    let _ = shell(&format!("umount {at}"));
    done(&["flash", "on", &dir]);
    let image = scratch().path().join("copy.img");
    std::fs::create_dir_all(image.parent().unwrap()).unwrap();
    std::fs::copy(serving.path().join("flash"), &image).unwrap();
    e2fsck_preen(&image).unwrap();
    e2fsck_clean(&image).unwrap();
    assert_eq!(done(&["cat", &support::at(&image, "/kept")]), "kept\n");
    std::fs::remove_dir_all(image.parent().unwrap()).unwrap();
    assert!(shell(&format!("losetup -d {node}")));
}

#[test]
fn ctrl_c_ends_a_server_and_unmounts() {
    if !require("ctrl_c_ends_a_server_and_unmounts", &[Need::Fuse]) {
        return;
    }
    let dir = scratch();
    let is_served = || dir.path().join("flash").exists();
    let path = dir.path().to_str().unwrap();
    let ran = ended(&["flash", "serve", "nexus7-emmc", path, "--foreground"], &is_served);
    assert_eq!((ran.status.code(), ran.stdout, ran.stderr), (Some(0), vec![], vec![]));
    assert!(!is_served());
}

#[test]
fn what_cannot_be_served_is_refused() {
    let dir = scratch();
    let path = dir.path().to_str().unwrap();
    let text = refused(2, &["flash", "serve", "nexus8-emmc", path]);
    assert!(text.contains("nexus8-emmc"), "{text}");
    assert_eq!(run(&["flash", "serve", "nexus7-emmc", path, "--size", "much"]).code, 2);
    let text = refused(1, &["flash", "cut", path]);
    assert!(text.contains("flash serve"), "{text}");
}
