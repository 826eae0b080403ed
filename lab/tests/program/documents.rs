//! The command lines of `syncline-lab` in README, docs and samples run as they stand, in their
//! order. A test of the program parses all of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{binary, copy_program, lab, scratch};
use syncline_testkit::{Need, require};

/// Parts of lines that do not run here, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("--runtime 60", "minutes of real time; bench.rs"),
    ("latency DIR --quick", "half a minute of real time; latency.rs"),
    ("probe /mnt/card", "minutes of a real card; reports.rs probes a model"),
    ("lifetime --watch", "root, and an hour of a device; lifetime.rs"),
    ("flash serve", "runs until Ctrl-C, as root; flash.rs"),
    ("trace watch", "root, and days of devices; trace/watch.rs"),
    ("bench fjord", "half a minute of processor time; reports.rs runs one application"),
    ("reproduce --html papers.html", "minutes of processor time; lab/tests/reproduce"),
    ("reproduce --full", "hours of processor time"),
    ("--real-time", "minutes of real time; latency.rs"),
    ("bench applications --device all", "minutes; lab/tests/bench/applications.rs"),
    ("bench android-day", "minutes; lab/tests/bench/aged.rs"),
    ("--executor tcp", "a scheduler of Dask; test_sweeps.py of the Python package"),
];

/// Paths of the reader's machine, and what stands for them.
const PLACES: [(&str, &str); 1] = [("/mnt/card", "DIR")];

/// Files that the documents take for granted. The events are of a mount.
const FILES: &str = r#"
for trace in mail disk day; do cp samples/mail.blocks.trace $trace.trace; done
cp samples/mail.pages.trace app.trace
cat > plan.toml <<END
what = "cache"
traces = ["samples/*.pages.trace"]
policies = ["lru", "clock"]
sizes = ["64K", "10%"]
devices = ["sd-2012"]
options = ["", "fsync"]
END
syncline-lab bench create --operations 5 --size 64 --json before.json
syncline-lab bench create --operations 5 --size 64 --seed 2 --json after.json
mkdir card
syncline mkfs --size 64M -E root_owner=$(id -u):$(id -g) card.img
syncline mount -o trace=app card.img card
head -c 3000000 /dev/zero > card/film.iso
syncline umount card
cp app.events run.events
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The documents in `dir`, with those below it.
fn documents(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            documents(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

/// The lines in blocks of code that call the program.
fn lines() -> Vec<(String, String)> {
    let mut paths = vec![root().join("README.md"), root().join("samples/README.md")];
    documents(&root().join("docs"), &mut paths);
    let mut found = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut fenced = false;
        for (number, line) in text.lines().enumerate() {
            fenced ^= line.starts_with("```");
            let line = line.strip_prefix("$ ").unwrap_or(line);
            let line = line.strip_prefix("sudo ").unwrap_or(line);
            if fenced && line.starts_with("syncline-lab ") {
                found.push((format!("{}:{}", path.display(), number + 1), line.to_owned()));
            }
        }
    }
    found
}

fn reason(line: &str) -> Option<&'static str> {
    LEFT_OUT.iter().find(|(part, _)| line.contains(part)).map(|(_, why)| *why)
}

#[test]
fn commands_of_documents_run() {
    if !require("commands_of_documents_run", &[Need::Fuse, Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let programs = dir.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    copy_program(&binary(), &programs.join("syncline"));
    copy_program(&lab(), &programs.join("syncline-lab"));
    std::os::unix::fs::symlink(root().join("samples"), dir.path().join("samples")).unwrap();
    std::fs::create_dir(dir.path().join("DIR")).unwrap();
    let shell = |line: &str| -> Output {
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.args(["-ec", line]).current_dir(dir.path()).env("PATH", path);
        command.output().unwrap()
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let made = shell(FILES);
    assert!(made.status.success(), "{}", said(&made));
    let mut count = 0;
    for (at, line) in lines() {
        if reason(&line).is_some() {
            continue;
        }
        // A document sweeps again under the same name.
        if line.contains(" sweep ") && !line.contains("--resume") {
            shell("rm -rf results");
        }
        let here = PLACES.iter().fold(line.clone(), |line, (path, own)| line.replace(path, own));
        let ran = shell(&here);
        assert!(ran.status.success(), "{at}: {line}: {}", said(&ran));
        count += 1;
    }
    assert!(count > 24, "only {count} lines ran");
}

#[test]
fn what_is_left_out_is_there() {
    let lines = lines();
    for (part, why) in LEFT_OUT {
        let is_there = lines.iter().any(|(_, line)| line.contains(part));
        assert!(is_there && !why.is_empty(), "{part} is in no document: take it out");
    }
    for (path, _) in PLACES {
        assert!(lines.iter().any(|(_, line)| line.contains(path) && reason(line).is_none()));
    }
}
