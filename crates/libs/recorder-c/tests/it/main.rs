//! A C program on the C interface, compiled and linked here; its events read from Rust.

use std::path::{Path, PathBuf};
use std::process::Command;

use syncline_recorder::os::{FileSource, event_files};
use syncline_recorder::reader;
use syncline_testkit::skip;

// Has the library linked, so that it is there for the program.
use syncline_recorder_c as _;

/// The directory of the shared library, beside this test or one above.
fn library() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let dirs = test.ancestors().skip(1).take(2);
    dirs.map(Path::to_owned).find(|dir| dir.join("libsyncline_recorder_c.so").is_file())
}

#[test]
fn a_c_program_records_two_events() {
    let test = "a_c_program_records_two_events";
    if Command::new("cc").arg("--version").output().is_err() {
        return skip(test, "needs cc; install build-essential");
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = library().expect("cargo builds the library with its tests");
    let dir = tempfile::tempdir().unwrap();
    let (program, events) = (dir.path().join("program"), dir.path().join("events"));
    std::fs::create_dir(&events).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(source.join("include"))
        .arg(source.join("tests/record.c"))
        .arg("-L")
        .arg(&library)
        .arg("-lsyncline_recorder_c")
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran =
        Command::new(&program).arg(&events).env("LD_LIBRARY_PATH", &library).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let files = event_files(&events).unwrap();
    assert_eq!(files.len(), 2, "{files:?}");
    for (file, sequences) in files.iter().zip([(20, 50), (30, 45)]) {
        let summary = reader::read(&FileSource::open(file).unwrap(), &mut |_| Ok(())).unwrap();
        let summary = summary.expect("an event");
        assert!(summary.is_whole(), "{summary:?}");
        assert_eq!(summary.sequences, Some(sequences));
    }
}
