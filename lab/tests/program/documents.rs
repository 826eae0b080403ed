//! The command lines of `syncline-lab` in README, docs and samples run as they stand, in their
//! order. A test of the program parses all of them.

use std::path::Path;
use std::process::Command;

use crate::support::{binary, copy_program, lab, scratch};
use syncline_testkit::{Need, require};

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
