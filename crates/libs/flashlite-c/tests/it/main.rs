//! A C program uses the header and the shared library.

use std::path::PathBuf;
use std::process::Command;

// So that cargo builds the library, with its C form, before this test.
use syncline_flashlite_c as _;

const NAME: &str = "a_c_program_downloads_and_rearranges";

/// Finds the directory in which cargo puts the shared library: that of this test, or its parent.
fn library_dir() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut dirs = test.ancestors().skip(1).take(2);
    dirs.find(|dir| dir.join("libsyncline_flashlite_c.so").is_file()).unwrap().to_owned()
}

#[test]
fn a_c_program_downloads_and_rearranges() {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    if !Command::new("cc").arg("--version").output().is_ok_and(|ran| ran.status.success()) {
        return syncline_testkit::skip(NAME, "needs cc; install build-essential");
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("download");
    let library = library_dir();
    let compiled = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-I"])
        .arg(here.join("include"))
        .arg(here.join("tests/it/download.c"))
        .arg("-o")
        .arg(&program)
        .arg(library.join("libsyncline_flashlite_c.so"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program)
        .current_dir(dir.path())
        .env("LD_LIBRARY_PATH", &library)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    let file = std::fs::read(dir.path().join("file")).unwrap();
    assert_eq!(file.len(), 100 * 10_240 + 5);
    for (chunk, bytes) in file[..100 * 10_240].chunks(10_240).enumerate() {
        assert!(bytes.iter().all(|byte| usize::from(*byte) == chunk + 1), "chunk {chunk}");
    }
    assert_eq!(&file[100 * 10_240..], [0; 5]);
}
