//! The stock judge: e2fsck.
//!
//! Exit codes of e2fsck are bits: 1 errors were corrected, 4 errors were left, 8 it could not work.
//! A judged image must give 0: a crash state that needs a correction, however small, is a failure.

use std::path::Path;
use std::process::{Command, Output};

use crate::env::program;

fn e2fsck(path: &Path, flag: &str) -> Output {
    Command::new(program("e2fsck"))
        .arg(flag)
        .arg(path)
        .output()
        .expect("e2fsck runs; tests ask require(Need::E2fsck) first")
}

fn verdict(path: &Path, flag: &str) -> Result<(), String> {
    let output = e2fsck(path, flag);
    if output.status.code() == Some(0) {
        return Ok(());
    }
    Err(format!(
        "e2fsck {flag} {} ended with {}:\n{}{}",
        path.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Whether `e2fsck -fn` finds nothing at all: the full check, the image is not changed. A journal
/// that wants recovery is not recovered, so use this for cleanly unmounted images.
///
/// # Errors
/// What e2fsck printed.
///
/// # Panics
/// If e2fsck cannot be run.
pub fn e2fsck_clean(path: &Path) -> Result<(), String> {
    verdict(path, "-fn")
}

/// Recovers as the boot scripts do and then checks: `e2fsck -p` (replays the journal) and
/// `e2fsck -fn` must both end with 0. The image is changed.
///
/// # Errors
/// What e2fsck printed.
///
/// # Panics
/// If e2fsck cannot be run.
pub fn e2fsck_preen(path: &Path) -> Result<(), String> {
    verdict(path, "-p")?;
    verdict(path, "-fn")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ImageSpec, Need, debugfs, mkfs, require};

    /// The canary: an image with an error is not called clean by either judge.
    #[test]
    fn a_wrong_link_count_is_found() {
        if !require("a_wrong_link_count_is_found", &[Need::E2fsck]) {
            return;
        }
        let image = mkfs(&ImageSpec::with_size(8 << 20));
        e2fsck_clean(image.path()).unwrap();
        e2fsck_preen(image.path()).unwrap();
        let said = debugfs(image.path(), "sif / links_count 7\n");
        assert!(!said.contains("not found"), "{said}");
        let said = e2fsck_clean(image.path()).unwrap_err();
        assert!(said.contains("ref count"), "{said}");
        assert!(e2fsck_preen(image.path()).is_err());
    }
}
