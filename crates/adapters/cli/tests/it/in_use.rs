//! Images that the kernel uses: no command writes to them, whatever the kernel reaches them by.

use std::path::Path;
use std::process::Command;

use crate::support::{at, run, scratch};
use syncline_device::{FileDevice, FileOptions};
use syncline_testkit::{ImageSpec, KernelMount, Need, mkfs, require};

/// Every command that writes to an image, on this one.
fn writers(image: &Path, dir: &Path) -> Vec<Vec<String>> {
    let (name, file) = (image.display().to_string(), dir.join("file").display().to_string());
    let [tree, undo] = ["tree", "undo"].map(|name| dir.join(name).display().to_string());
    let words = |line: &[&str]| line.iter().map(ToString::to_string).collect();
    vec![
        words(&["cp", &file, &at(image, "/new")]),
        words(&["cp", "-r", &at(image, "/lost+found"), &at(image, "/copy")]),
        words(&["mkdir", &at(image, "/dir")]),
        words(&["mv", &at(image, "/lost+found"), &at(image, "/moved")]),
        words(&["rm", "-r", &at(image, "/lost+found")]),
        words(&["import", &tree, &name]),
        words(&["recover", &name]),
        words(&["repair", "-y", "--undo", &undo, &name]),
        words(&["resize", &name, "--size", "48M"]),
        words(&["serve", "--nfs", "127.0.0.1:0", &name]),
        words(&["record", "--image", &name, "--generate", "--records", "1"]),
        words(&["mount", &name, &tree]),
    ]
}

fn all_refused(image: &Path, dir: &Path, why: &str) {
    let before = std::fs::read(image).unwrap();
    for command in writers(image, dir) {
        let ran = run(&command);
        // An image that needs no recovery is not opened for writing.
        let idle = command[0] == "recover" && ran.text().contains("nothing to recover");
        // As e2fsck.
        let code = if command[0] == "repair" { 8 } else { 1 };
        assert!(idle || ran.code == code, "{command:?}: {} {} {}", ran.code, ran.text(), ran.err);
        assert!(idle || ran.err.contains(why), "{command:?}: {}", ran.err);
    }
    assert!(std::fs::read(image).unwrap() == before, "the image has changed");
}

/// Each says who has it.
#[test]
fn an_image_that_another_program_has_open_is_not_written_to() {
    if !require("an_image_that_another_program_has_open_is_not_written_to", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    std::fs::write(dir.path().join("file"), "x").unwrap();
    std::fs::create_dir(dir.path().join("tree")).unwrap();
    let image = mkfs(&ImageSpec::default());
    let held = FileDevice::open(image.path(), FileOptions::default()).unwrap();
    all_refused(image.path(), dir.path(), &format!("(process {})", std::process::id()));
    drop(held);
}

#[test]
fn an_image_that_the_kernel_has_mounted_is_not_written_to() {
    let needs = [Need::E2fsck, Need::Root, Need::Loop];
    if !require("an_image_that_the_kernel_has_mounted_is_not_written_to", &needs) {
        return;
    }
    let dir = scratch();
    std::fs::write(dir.path().join("file"), "x").unwrap();
    std::fs::create_dir(dir.path().join("tree")).unwrap();
    let image = mkfs(&ImageSpec::default());
    // By another name of the same file, too.
    let name = dir.path().join("name.img");
    std::os::unix::fs::symlink(image.path(), &name).unwrap();

    let mount = KernelMount::new(image.path(), "ro,noload").unwrap();
    for image in [image.path(), &name] {
        all_refused(image, dir.path(), "already mounted on");
    }
    mount.unmount().unwrap();

    // Mounted where the mount table does not tell: here after a lazy unmount, as in another mount
    // namespace.
    let mount = KernelMount::new(image.path(), "ro,noload").unwrap();
    let open = std::fs::File::open(mount.path().join("lost+found")).unwrap();
    let lazily = Command::new("umount").arg("-l").arg(mount.path()).status().unwrap();
    assert!(lazily.success());
    all_refused(image.path(), dir.path(), "losetup -d");
    drop(open);
    // It has nothing to unmount any more; it detaches its loop device and keeps the directory.
    let place = mount.path().to_owned();
    let _ = mount.unmount();
    std::fs::remove_dir(place).unwrap();

    // Mounted or not, by a loop device over a part of it.
    let attached = Command::new("losetup")
        .args(["--find", "--show", "--offset", "65536"])
        .arg(image.path())
        .output()
        .unwrap();
    let node = String::from_utf8(attached.stdout).unwrap();
    assert!(node.starts_with("/dev/loop"), "{node}");
    all_refused(image.path(), dir.path(), "losetup -d");
    let detached = Command::new("losetup").args(["-d", node.trim()]).status().unwrap();
    assert!(detached.success());
    swapped(dir.path());
    let ran = run(&["mkdir".to_owned(), at(image.path(), "/dir")]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

/// A file that the kernel swaps to, where it can: not on every file system.
fn swapped(dir: &Path) {
    let file = dir.join("swap");
    let script = "dd if=/dev/zero of=$0 bs=1M count=2 2> /dev/null && chmod 600 $0 && \
                  mkswap -q $0 > /dev/null && swapon $0 2> /dev/null";
    let on = Command::new("sh").args(["-c", script]).arg(&file).status().unwrap();
    if !on.success() {
        return;
    }
    let ran = run(&["mkdir".to_owned(), at(&file, "/dir")]);
    let off = Command::new("swapoff").arg(&file).status().unwrap();
    assert!(off.success() && ran.code == 1 && ran.err.contains("swapoff"), "{}", ran.err);
}
