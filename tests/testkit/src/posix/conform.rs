//! The suite: every case of `cases/`, in directories of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::posix::case::Runner;
use crate::posix::script::{Case, parse};

/// Name and text of every file of cases that can run in any directory that can be written.
const FILES: [(&str, &str); 15] = [
    ("chmod", include_str!("../../cases/chmod.txt")),
    ("chown", include_str!("../../cases/chown.txt")),
    ("link", include_str!("../../cases/link.txt")),
    ("mkdir", include_str!("../../cases/mkdir.txt")),
    ("mkfifo", include_str!("../../cases/mkfifo.txt")),
    ("mknod", include_str!("../../cases/mknod.txt")),
    ("open", include_str!("../../cases/open.txt")),
    ("rename", include_str!("../../cases/rename.txt")),
    ("rmdir", include_str!("../../cases/rmdir.txt")),
    ("symlink", include_str!("../../cases/symlink.txt")),
    ("truncate", include_str!("../../cases/truncate.txt")),
    ("ftruncate", include_str!("../../cases/ftruncate.txt")),
    ("unlink", include_str!("../../cases/unlink.txt")),
    ("utimensat", include_str!("../../cases/utimensat.txt")),
    ("data", include_str!("../../cases/data.txt")),
];
/// For a tree that [`prepare_read_only`] made and that has become read-only since.
const READ_ONLY: (&str, &str) = ("readonly", include_str!("../../cases/readonly.txt"));
/// For a file system that has no inode left.
const FULL: (&str, &str) = ("full", include_str!("../../cases/full.txt"));

/// One assertion: what it is, what should have been answered, what was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// File and line, title of the case, the line itself.
    pub name: String,
    /// Any of the answers, with `|` between.
    pub wanted: String,
    /// The answer: `ok`, the name of an error, or values.
    pub got: String,
}

impl Check {
    /// True if the answer is one of those wanted.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.wanted.split('|').any(|wanted| wanted == self.got)
    }
}

/// Runs the suite in `dir`. `other` is a directory on another file system; `only` a part of the
/// name of a file of cases, empty for all.
pub fn run(dir: &Path, other: &Path, only: &str) -> Result<Vec<Check>, String> {
    let mut checks = Vec::new();
    for (name, text) in FILES.iter().filter(|(name, _)| name.contains(only)) {
        file(name, text, dir, other, &mut checks)?;
    }
    Ok(checks)
}

fn file(
    name: &str,
    text: &str,
    dir: &Path,
    other: &Path,
    checks: &mut Vec<Check>,
) -> Result<(), String> {
    let cases = parse(text).map_err(|err| format!("cases/{name}.txt: {err}"))?;
    for (nr, case) in cases.iter().enumerate() {
        let home = dir.join(format!("{name}-{nr}"));
        let elsewhere = other.join(format!("{name}-{nr}"));
        for made in [&home, &elsewhere] {
            fs::create_dir(made)
                .and_then(|()| fs::set_permissions(made, fs::Permissions::from_mode(0o777)))
                .map_err(|err| {
                    format!("{} cannot be made: {err}; give an empty directory", made.display())
                })?;
        }
        in_case(name, case, &home, &elsewhere, checks)?;
        for made in [&home, &elsewhere] {
            // What a case makes undeletable is a disagreement of that case, and seen there.
            let _ = fs::remove_dir_all(made);
        }
    }
    Ok(())
}

/// One case in `home`, on a thread with a working directory and umask of its own.
fn in_case(
    name: &str,
    case: &Case,
    home: &Path,
    other: &Path,
    checks: &mut Vec<Check>,
) -> Result<(), String> {
    let run = || -> Result<Vec<Check>, String> {
        let mut runner = Runner::new(home, other)?;
        let steps = case.steps.iter().map(|step| {
            let (wanted, got) = runner.step(&step.text).map_err(|err| {
                format!("cases/{name}.txt line {}: {}: {err}", step.line, step.text)
            })?;
            let name = format!("{name}.txt:{} {}: {}", step.line, case.title, step.text);
            Ok(Check { name, wanted, got })
        });
        steps.collect()
    };
    let ran = std::thread::scope(|scope| scope.spawn(run).join());
    checks.extend(ran.map_err(|_| format!("cases/{name}.txt: case {} panicked", case.title))??);
    Ok(())
}

/// Makes in `dir` what the cases on a read-only file system look for.
pub fn prepare_read_only(dir: &Path) -> Result<(), String> {
    let said = |err: std::io::Error| format!("{}: {err}; give an empty directory", dir.display());
    fs::create_dir(dir.join("d")).map_err(said)?;
    fs::write(dir.join("f"), "contents").map_err(said)?;
    std::os::unix::fs::symlink("f", dir.join("l")).map_err(said)?;
    crate::posix::calls::make("fifo", dir.join("p").as_os_str(), 0o644)
        .map_err(|err| format!("{}: a fifo cannot be made: {err}; run this as root", dir.display()))
}

/// Runs the cases of a read-only file system in `dir`, which [`prepare_read_only`] filled.
pub fn run_read_only(dir: &Path, other: &Path) -> Result<Vec<Check>, String> {
    one_file(READ_ONLY, dir, other)
}

/// Runs the cases of a file system without free inodes in `dir`, which has a file `f`, a directory
/// `d` and nothing else that can be removed.
pub fn run_full(dir: &Path, other: &Path) -> Result<Vec<Check>, String> {
    one_file(FULL, dir, other)
}

fn one_file((name, text): (&str, &str), dir: &Path, other: &Path) -> Result<Vec<Check>, String> {
    let mut checks = Vec::new();
    for case in parse(text).map_err(|err| format!("cases/{name}.txt: {err}"))? {
        in_case(name, &case, dir, other, &mut checks)?;
    }
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrong expectation is told: the suite can fail.
    #[test]
    fn an_answer_that_is_not_wanted_is_found() {
        let name = "an_answer_that_is_not_wanted_is_found";
        if !crate::require(name, &[crate::Need::Root]) {
            return;
        }
        let scratch = tempfile::tempdir_in(crate::scratch_dir()).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let text = "case a\nmake file f 0640\nstat f mode -> 0644\nopen f/x r -> ENOENT\n\
                    as 1000:1000 open f r -> ok\nremember f\nmoved f -> c|m\nstat f size -> 0\n\
                    case b\nls . -> nothing";
        let mut checks = Vec::new();
        file("t", text, scratch.path(), elsewhere.path(), &mut checks).unwrap();
        let bad = checks.iter().filter(|check| !check.agrees());
        let got: Vec<&str> = bad.map(|check| check.got.as_str()).collect();
        assert_eq!(got, ["0640", "ENOTDIR", "EACCES", "none"]);
        assert_eq!(checks.len(), 8);
        assert!(file("u", "case a\nfly f", scratch.path(), elsewhere.path(), &mut checks).is_err());
    }
}
