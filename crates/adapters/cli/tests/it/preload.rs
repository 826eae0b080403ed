//! `syncline preload`: rules, report, what cannot be started.

use std::path::{Path, PathBuf};

use crate::support::{done, refused, run, scratch};

/// Cargo builds it for the tests and puts it beside them, or a level above.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut dirs = test.ancestors().skip(1).take(2).map(|dir| dir.join("libsyncline_preload.so"));
    dirs.find(|path| path.is_file()).unwrap()
}

fn preload<'a>(library: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["preload", "--library", library.to_str().unwrap()];
    words.extend(more);
    words
}

#[test]
fn a_program_runs_with_its_rules_and_its_exit_code() {
    let (dir, library) = (scratch(), library());
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (report, rules) = (path("report"), path("rules"));
    std::fs::write(&rules, "relaxed *.tmp\n").unwrap();
    let script = format!("cd {}; echo x > a.tmp; echo y > b.tmp; sync a.tmp b.tmp", path(""));
    let words = ["--rules", &rules, "--strict", "b.*", "--report", &report, "--", "sh", "-c"];
    done(&[&preload(&library, &words)[..], &[&script]].concat());
    let report = std::fs::read_to_string(&report).unwrap();
    let report: serde_json::Value = serde_json::from_str(report.trim()).unwrap();
    assert!(report["program"].as_str().unwrap().ends_with("sync"), "{report}");
    assert_eq!((&report["relaxed"]["fsync"], &report["strict"]["fsync"]), (&1.into(), &1.into()));
    assert_eq!(report["synced_at_end"], 1);
    let ran =
        run(&preload(&library, &["--relaxed", "*", "--report", "-", "--", "sh", "-c", "exit 7"]));
    assert_eq!((ran.code, ran.err.as_str()), (7, ""));
}

#[test]
fn what_cannot_be_run_is_said() {
    let (dir, library) = (scratch(), library());
    let said = refused(2, &preload(&library, &["--", "true"]));
    assert!(said.contains("--relaxed GLOB"), "{said}");
    refused(2, &preload(&library, &["--relaxed", "", "--", "true"]));
    let said = refused(2, &preload(&library, &["--strict", "a[", "--", "true"]));
    assert!(said.contains("--strict: `a[` is not a glob"), "{said}");
    let said = refused(1, &preload(&library, &["--relaxed", "*", "--", "/no/such/program"]));
    assert!(said.contains("/no/such/program"), "{said}");
    let missing = dir.path().join("none.so");
    refused(1, &preload(&missing, &["--relaxed", "*", "--", "true"]));
    let spaced = dir.path().join("a b.so");
    std::fs::copy(&library, &spaced).unwrap();
    let said = refused(1, &preload(&spaced, &["--relaxed", "*", "--", "true"]));
    assert!(said.contains("spaces"), "{said}");
}
