//! New images: refusals, a full host, and what is there already.

use std::path::Path;
use std::process::Command;

use syncline_fs::mkfs::Options;
use syncline_image::ImageError;
use syncline_image::mkfs::{Identity, Mkfs};
use syncline_testkit::{Need, e2fsck_clean, require};

fn made(size_bytes: u64) -> Mkfs {
    Mkfs { size_bytes: Some(size_bytes), ..Mkfs::default() }
}

fn features(features: &str) -> Options {
    Options { features: features.to_owned(), ..Options::default() }
}

#[test]
fn refused_options_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    std::fs::write(&old, b"kept").unwrap();
    for name in ["bigalloc", "quota", "nonsense"] {
        let refused = Mkfs { format: features(name), force: true, ..made(64 << 20) };
        for path in [&new, &old] {
            let err = refused.make(path).unwrap_err();
            assert!(matches!(err, ImageError::Failed(_)), "{err}");
            assert!(err.to_string().contains(name), "{err}");
        }
    }
    assert!(!new.exists());
    assert_eq!(std::fs::read(&old).unwrap(), b"kept");
    assert!(made(64 << 20).make(&old).unwrap_err().to_string().contains("add --force"));
    assert_eq!(std::fs::read(&old).unwrap(), b"kept");
}

#[test]
fn equal_arguments_and_times_give_equal_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = |name: &str, new: &Mkfs| {
        let path = dir.path().join(name);
        new.make(&path).unwrap();
        std::fs::read(&path).unwrap()
    };
    let timed = Mkfs { time_s: Some(1_700_000_000), ..made(8 << 20) };
    let first = bytes("a", &timed);
    assert!(bytes("b", &timed) == first);
    assert!(bytes("c", &Mkfs { identity: Identity::Random, ..timed.clone() }) != first);
    assert!(bytes("d", &made(8 << 20))[1024 + 0x68..][..16] != first[1024 + 0x68..][..16]);
    let clear = bytes("e", &Mkfs { identity: Identity::Given([0; 16]), ..timed });
    assert_eq!(clear[1024 + 0x68..][..16], [0; 16]);
}

#[test]
fn a_full_host_leaves_no_image() {
    let test = "a_full_host_leaves_no_image";
    if !require(test, &[Need::Root, Need::E2fsck]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = |program: &str, args: &[&str]| {
        Command::new(program).args(args).arg(dir.path()).status().unwrap().success()
    };
    if !run("mount", &["-t", "tmpfs", "-o", "size=2m", "tmpfs"]) {
        syncline_testkit::skip(test, "needs the right to mount a tmpfs");
        return;
    }
    let full = |path: &Path| made(8 << 30).make(path).unwrap_err().to_string();
    let new = dir.path().join("new");
    let said = full(&new);
    let stays = new.exists();
    let fits = Mkfs { size_bytes: Some(16 << 20), ..Mkfs::default() }.make(&new);
    let clean = e2fsck_clean(&new);
    let over = Mkfs { force: true, ..made(8 << 30) }.make(&new).unwrap_err().to_string();
    let start = std::fs::File::open(&new).and_then(|file| {
        let mut start = [0; 2048];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut start, 0)?;
        Ok(start)
    });
    assert!(run("umount", &[]));
    assert!(said.contains("no file system was made") && !stays, "{said}");
    fits.unwrap();
    clean.unwrap();
    assert!(over.contains("no file system was made"), "{over}");
    assert!(start.unwrap() == [0; 2048], "an old image holds no file system after the failure");
}
