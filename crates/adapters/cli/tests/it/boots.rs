//! An image of an ordinary user is the root of a Linux that boots (`lab/scripts/boot_images.py`).

use std::path::Path;
use std::process::Command;

use syncline_testkit::{Need, require, skip};

use crate::support::binary;

/// Exit code of the script where qemu, a kernel or a static BusyBox is not to be had.
const MISSING: i32 = 77;

/// `cargo xtask run boot-images` boots Debian too, which takes minutes to fetch.
#[test]
fn a_container_image_boots_to_a_login() {
    let test = "a_container_image_boots_to_a_login";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../lab/scripts/boot_images.py");
    let mut python = Command::new("python3");
    python.arg(lab).arg(binary().get_program()).args(["--only", "busybox"]);
    let Ok(ran) = python.output() else {
        return skip(test, "needs python3; install python3");
    };
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.code() == Some(MISSING) {
        return skip(test, said.trim());
    }
    assert!(ran.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&ran.stdout).contains(" booted it to a login"), "{said}");
}
