//! The command lines of `syncline-lab` in README, docs and samples run as they stand, in their
//! order: once as the user who runs the tests, and once as an ordinary user. Another test parses
//! all of them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::support::{binary, copy_program, lab, scratch};
use syncline_testkit::{Need, require, skip};

#[test]
fn commands_of_documents_run() {
    if !require("commands_of_documents_run", &[Need::Fuse, Need::E2fsck]) {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let (programs, place) = (scratch(), scratch());
    copy_program(&binary(), &programs.path().join("syncline"));
    copy_program(&lab(), &programs.path().join("syncline-lab"));
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.arg(root.join("packaging/try-documents.sh")).arg("syncline-lab").arg(&root);
    let ran = command.current_dir(place.path()).env("PATH", path).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Runs the lines as user 1000, who may not be allowed to read the checkout or to open /dev/fuse:
/// in a copy, and with mounts of its own, where the device is one that users may open.
const AS_A_USER: &str = r#"set -e
mkdir "$0/dev" "$0/work"
cp -r README.md docs samples packaging "$0"
chown -R 1000:1000 "$0"
mount -t tmpfs none "$0/dev"
mknod -m 666 "$0/dev/fuse" c 10 229
mount --bind "$0/dev/fuse" /dev/fuse
cd "$0/work"
exec setpriv --reuid=1000 --regid=1000 --clear-groups \
    sh ../packaging/try-documents.sh syncline-lab "$0""#;

#[test]
fn commands_of_documents_run_as_a_user() {
    let test = "commands_of_documents_run_as_a_user";
    if !require(test, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    let mounts = std::fs::metadata("/usr/bin/fusermount3").map_or(0, |found| found.mode());
    if mounts & 0o4000 == 0 {
        return skip(test, "needs fusermount3 with its set-user-ID bit");
    }
    let dir = scratch();
    let programs = dir.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    copy_program(&binary(), &programs.join("syncline"));
    copy_program(&lab(), &programs.join("syncline-lab"));
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", AS_A_USER]).arg(dir.path()).env("PATH", path);
    let ran = command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(String::from_utf8_lossy(&ran.stdout).contains("lines of the documents ran"));
}
