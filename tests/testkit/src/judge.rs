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

/// Checks with `e2fsck -fn` that the image has no errors. The image is not changed. A journal that
/// needs recovery is not recovered, so use this for cleanly unmounted images.
///
/// # Panics
/// If e2fsck cannot be run.
pub fn e2fsck_clean(path: &Path) -> Result<(), String> {
    verdict(path, "-fn")
}

/// Messages of `e2fsck -p` that are no corrections.
const HARMLESS: [&str; 4] = [
    "recovering journal",
    "Clearing orphaned inode",
    "Clearing orphan",
    // A file whose cut was under way is in the list of orphans until it is done.
    "Truncating orphaned inode",
];

/// With an orphan file e2fsck 1.47.0 ends with 1 on every image that was mounted when the power
/// went, also on a kernel's: the mark that the orphan file is in use is not in the backup
/// superblocks, and it takes it back. It also empties the orphan file only then if there were
/// orphans in it.
const ORPHAN_FILE: [&str; 4] = [
    "primary superblock features different from backup, check forced.",
    "Feature orphan_present is set but orphan file is clean.",
    "Orphan file (inode ",
    "CLEARED.",
];

/// `-p` must end with 0, or with 1 after having said nothing else than `accepted`; `-fn` with 0.
fn preen(path: &Path, accepted: &[&str]) -> Result<(), String> {
    let output = e2fsck(path, "-p");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let prefix = path.display().to_string();
    let strange = said.lines().find(|line| {
        let line = line.trim_start_matches(prefix.as_str()).trim_start_matches([':', ' ']).trim();
        let summary = line.contains(" files (") && line.ends_with(" blocks");
        // A full check that was forced mentions what it could do better.
        let advice = line.ends_with("could be shorter.  IGNORED.");
        let harmless = advice || HARMLESS.iter().chain(accepted).any(|k| line.starts_with(k));
        !(line.is_empty() || summary || harmless)
    });
    match (output.status.code(), strange) {
        (Some(0), _) | (Some(1), None) => verdict(path, "-fn").or_else(|said| {
            // Where there is no backup superblock, -p leaves the mark for the next full check,
            // which also says what it could do better.
            let mark_only = accepted.iter().any(|line| said.contains(line))
                && said.contains(ORPHAN_FILE[1])
                && said.matches("? no").count() == 1 + said.matches("Optimize? no").count();
            if mark_only { Ok(()) } else { Err(said) }
        }),
        _ => Err(format!("e2fsck -p ended with {}:\n{said}", output.status)),
    }
}

/// Recovers as the boot scripts do and then checks: `e2fsck -p` (replays the journal) and
/// `e2fsck -fn` must both end with 0. The image is changed. The one correction that is accepted is
/// the one that a kernel's crash image needs too, of the orphan file's mark.
///
/// # Panics
/// If e2fsck cannot be run.
pub fn e2fsck_preen(path: &Path) -> Result<(), String> {
    preen(path, &ORPHAN_FILE)
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
