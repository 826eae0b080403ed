//! Abilities of the machine of a test run, and the report of a test that cannot run on it.
//!
//! Variables
//! - `SYNCLINE_SKIP_LOG`: file to which every skip is appended, one `test: reason` a line.
//!   `xtask ci` sets it and adds the skips to its summary.
//! - `SYNCLINE_REQUIRE`: comma-separated abilities (`root`, `loop`, `e2fsck`, `fuse`,
//!   `chromium`) that must be
//!   there: a test that misses one of them fails. `xtask ci` sets all of them where `CI=true`.
//! - `SYNCLINE_SCRATCH`: directory for images. Default: `/dev/shm` if it can be written, because a
//!   judge that reads from memory is several times faster; else the system's temporary directory.
//! - `SYNCLINE_FUZZ_SECONDS`: how long each fuzz test goes on after its fixed number of rounds.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// An ability of the machine that a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The test runs as uid 0.
    Root,
    /// Loop devices can be made and mounted.
    Loop,
    /// The programs of e2fsprogs: mke2fs, e2fsck, debugfs.
    E2fsck,
    /// FUSE file systems can be mounted.
    Fuse,
    /// Pages can be opened in Chromium.
    Chromium,
}

impl Need {
    /// Its name in `SYNCLINE_REQUIRE`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Need::Root => "root",
            Need::Loop => "loop",
            Need::E2fsck => "e2fsck",
            Need::Fuse => "fuse",
            Need::Chromium => "chromium",
        }
    }

    /// Why the machine does not have it, or nothing if it does.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        match self {
            Need::Root if !rustix::process::geteuid().is_root() => Some("needs root".to_owned()),
            Need::Root => None,
            Need::Loop => {
                static ANSWER: OnceLock<Option<String>> = OnceLock::new();
                ANSWER.get_or_init(loop_missing).clone()
            }
            Need::Fuse => fuse_missing(),
            Need::Chromium => crate::browser::missing(),
            Need::E2fsck => ["mke2fs", "e2fsck", "debugfs"]
                .iter()
                .find(|program| which(program).is_none())
                .map(|program| format!("needs {program}; install e2fsprogs")),
        }
    }
}

fn fuse_missing() -> Option<String> {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if opened.is_err() {
        return Some("needs /dev/fuse; load the kernel module fuse".to_owned());
    }
    let root = rustix::process::geteuid().is_root();
    (!root && which("fusermount3").is_none())
        .then(|| "needs root or fusermount3; install fuse3".to_owned())
}

fn loop_missing() -> Option<String> {
    if !Path::new("/dev/loop-control").exists() {
        return Some("needs loop devices (/dev/loop-control is not there)".to_owned());
    }
    let found = Command::new(program("losetup")).arg("-f").stderr(Stdio::null()).output();
    match found {
        Ok(output) if output.status.success() => None,
        Ok(_) => Some("needs a free loop device (losetup -f finds none)".to_owned()),
        Err(_) => Some("needs losetup; install util-linux".to_owned()),
    }
}

/// The path of a system program; `/usr/sbin` is often not on the path of a plain user.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(extra).map(|dir| dir.join(name)).find(|p| p.is_file())
}

/// As [`which`], or the bare name, so that running it gives the usual "not found".
pub(crate) fn program(name: &str) -> PathBuf {
    which(name).unwrap_or_else(|| PathBuf::from(name))
}

/// Says that `test` does not run here and why: on standard error, and in the skip log.
/// The caller returns afterwards; the summary counts the test as skipped instead of passed.
pub fn skip(test: &str, reason: &str) {
    eprintln!("SKIP {test}: {reason}");
    let Some(log) = std::env::var_os("SYNCLINE_SKIP_LOG") else { return };
    let written = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .and_then(|mut file| file.write_all(format!("{test}: {reason}\n").as_bytes()));
    if let Err(error) = written {
        panic!("the skip of {test} cannot be written to {}: {error}", log.display());
    }
}

/// Returns true if the machine has all of `needs`. Otherwise the skip is recorded and the test
/// should return.
///
/// # Panics
/// If `SYNCLINE_REQUIRE` names a missing ability.
#[must_use]
pub fn require(test: &str, needs: &[Need]) -> bool {
    let demanded = std::env::var("SYNCLINE_REQUIRE").unwrap_or_default();
    match decide(needs, &demanded, Need::missing) {
        Ok(None) => true,
        Ok(Some(reason)) => {
            skip(test, &reason);
            false
        }
        Err(reason) => panic!(
            "{test} must run here, SYNCLINE_REQUIRE={demanded} says so, but it {reason}; \
             give the machine that ability or take it out of SYNCLINE_REQUIRE"
        ),
    }
}

/// `Ok(None)`: run. `Ok(reason)`: skip. `Err(reason)`: an ability is missing that must be there.
fn decide(
    needs: &[Need],
    demanded: &str,
    missing: impl Fn(Need) -> Option<String>,
) -> Result<Option<String>, String> {
    for &need in needs {
        let Some(reason) = missing(need) else { continue };
        if demanded.split(',').any(|name| name.trim() == need.name()) {
            return Err(reason);
        }
        return Ok(Some(reason));
    }
    Ok(None)
}

/// Returns the directory for images and other scratch files of tests.
#[must_use]
pub fn scratch_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("SYNCLINE_SCRATCH") {
        return PathBuf::from(dir);
    }
    static CHOICE: OnceLock<PathBuf> = OnceLock::new();
    let choice = CHOICE.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let roomy = rustix::fs::statvfs(&memory)
            .is_ok_and(|s| s.f_bavail.saturating_mul(s.f_frsize) >= 2 << 30);
        if roomy && tempfile::tempfile_in(&memory).is_ok() { memory } else { std::env::temp_dir() }
    });
    choice.clone()
}

/// The rounds of a fuzz test: a fixed number, then more as long as `SYNCLINE_FUZZ_SECONDS` says.
///
/// Without the variable every machine, fast or slow, tries the same inputs.
#[derive(Debug)]
pub struct FuzzRounds {
    begun: u64,
    rounds: u64,
    end: Instant,
}

impl FuzzRounds {
    /// Returns `rounds` rounds, or more if the time is not over then.
    #[must_use]
    pub fn at_least(rounds: u64) -> Self {
        let text = std::env::var("SYNCLINE_FUZZ_SECONDS").unwrap_or_default();
        let limit = Duration::from_secs(text.trim().parse().unwrap_or(0));
        Self { begun: 0, rounds, end: Instant::now() + limit }
    }

    /// Returns how many rounds began.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun
    }
}

impl Iterator for FuzzRounds {
    type Item = u64;

    /// Returns the number of the next round, from 0.
    fn next(&mut self) -> Option<u64> {
        let round = self.begun;
        let goes_on = round < self.rounds || Instant::now() < self.end;
        goes_on.then(|| {
            self.begun += 1;
            round
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_ability_skips_unless_it_is_demanded() {
        let no_loop = |need| (need == Need::Loop).then(|| "needs loop".to_owned());
        let needs = [Need::E2fsck, Need::Loop];
        assert_eq!(decide(&needs, "", no_loop), Ok(Some("needs loop".to_owned())));
        assert_eq!(decide(&needs, "e2fsck", no_loop), Ok(Some("needs loop".to_owned())));
        assert_eq!(decide(&needs, "root, loop", no_loop), Err("needs loop".to_owned()));
        assert_eq!(decide(&[Need::Root], "root,loop", no_loop), Ok(None));
    }

    #[test]
    fn programs_outside_of_the_path_are_found() {
        assert!(which("sh").is_some());
        assert!(which("no-such-program-at-all").is_none());
    }

    #[test]
    fn the_scratch_directory_takes_files() {
        tempfile::tempfile_in(scratch_dir()).unwrap();
    }
}
