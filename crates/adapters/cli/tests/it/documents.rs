//! The command lines of `syncline` in README and docs run as they stand, in their order, as root
//! and as a user. A test of each program parses all of them.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use crate::mount::users_may;
use crate::preload::library;
use crate::support::{binary, copy_program, scratch};
use syncline_testkit::{Need, require, skip};

/// Runs every line in a new directory, which `user` owns. Without `mounts` those of mounts are left
/// out.
fn all(user: u32, mounts: bool) {
    // The user may not be allowed to read the checkout.
    let copy = r#"cp README.md packaging/try-documents.sh "$0" && cp docs/*.md "$0/docs""#;
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    for name in ["docs", "programs", "work"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    let copied = Command::new("sh").args(["-c", copy]).arg(dir.path()).current_dir(root).status();
    assert!(copied.unwrap().success());
    copy_program(&binary(), &at("programs/syncline"));
    std::fs::copy(library(), at("programs/libsyncline_preload.so")).unwrap();
    for path in [dir.path(), &at("work")] {
        chown(path, Some(user), Some(user)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={user}")).arg(format!("--regid={user}"));
    command.args(["--clear-groups", "sh"]).arg(at("try-documents.sh"));
    command.arg("syncline").arg(dir.path()).current_dir(at("work"));
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", at("programs").display()));
    let ran = command.env("MOUNTS", if mounts { "yes" } else { "no" }).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn commands_of_documents_run_as_root() {
    if require("commands_of_documents_run_as_root", &[Need::Fuse, Need::E2fsck, Need::Root]) {
        all(0, true);
    }
}

#[test]
fn commands_of_documents_run_as_a_user() {
    let test = "commands_of_documents_run_as_a_user";
    if !require(test, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    if !users_may() {
        skip(&format!("{test}: mounts"), crate::mount::USERS_MAY_NOT);
    }
    all(1000, users_may());
}
