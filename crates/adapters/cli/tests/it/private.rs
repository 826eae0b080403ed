//! Files that hold data of a volume are for their owner only, from the call that makes them on.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{done, file, refused, scratch};
use crate::support::{mounted::Mounted, text};
use syncline_testkit::{ImageSpec, Need, mkfs, require};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap_or_else(|err| panic!("{}: {err}", path.display())).mode()
        & 0o7777
}

#[test]
fn images_and_archives_are_for_their_owner() {
    let test = "images_and_archives_are_for_their_owner";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("tree")).unwrap();
    file(&path("tree"), "f", "secret");
    done(&["mkfs", "--size", "8M", text(&path("made.img"))]);
    done(&["import", text(&path("tree")), text(&path("imported.img"))]);
    done(&["export", text(&path("imported.img")), "-o", text(&path("out.tar"))]);
    for name in ["made.img", "imported.img", "out.tar"] {
        assert_eq!(mode(&path(name)), 0o600, "{name}");
    }
    done(&["mkfs", "--size", "8M", "--mode", "664", text(&path("asked.img"))]);
    done(&["import", "--mode", "644", text(&path("out.tar")), text(&path("asked2.img"))]);
    assert_eq!((mode(&path("asked.img")), mode(&path("asked2.img"))), (0o664, 0o644));
    // One that is there keeps its mode.
    done(&["mkfs", "--force", "--size", "8M", text(&path("asked.img"))]);
    assert_eq!(mode(&path("asked.img")), 0o664);
    // A link to what is not there is no place for a new one.
    std::os::unix::fs::symlink(path("elsewhere"), path("link.img")).unwrap();
    for arguments in [
        &["mkfs", "--size", "8M", text(&path("link.img"))][..],
        &["import", text(&path("tree")), text(&path("link.img"))],
    ] {
        refused(1, arguments);
        assert!(!path("elsewhere").exists(), "{arguments:?}");
    }
    if Path::new("/usr/bin/qemu-img").exists() {
        done(&["mkfs", "--size", "8M", text(&path("made.qcow2"))]);
        assert_eq!(mode(&path("made.qcow2")), 0o600);
    }
}

#[test]
fn logs_and_traces_of_a_mount_are_for_their_owner() {
    let test = "logs_and_traces_of_a_mount_are_for_their_owner";
    if !require(test, &[Need::E2fsck, Need::Fuse]) {
        return;
    }
    let dir = scratch();
    let path = |name: &str| dir.path().join(name);
    // A link where the trace is written is not followed.
    let victim = file(dir.path(), "victim", "kept");
    std::os::unix::fs::symlink(&victim, path("t.events.partial")).unwrap();
    let mut mounted = Mounted::prepared(mkfs(&ImageSpec::with_size(64 << 20)), None);
    let log = path("log");
    mounted.mount(&format!("trace={},buffer_log={}", text(&path("t")), text(&log)));
    std::fs::write(mounted.at("f"), "data").unwrap();
    assert_eq!(mode(&log), 0o600);
    mounted.unmount_clean();
    assert_eq!(mode(&path("t.events")), 0o600);
    assert_eq!(std::fs::read(&victim).unwrap(), b"kept");
}
