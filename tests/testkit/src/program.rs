//! Programs of this repository that tests of other packages start.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Path of the program `name` of `package`: in the directory that `SYNCLINE_PROGRAMS` names, as in
/// CI, or built beside this test.
///
/// # Panics
/// If cargo cannot build it.
pub fn program(name: &str, package: &str) -> PathBuf {
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    if let Some(built) = std::env::var_os("SYNCLINE_PROGRAMS") {
        return PathBuf::from(built).join(name);
    }
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    built.entry(name.to_owned()).or_insert_with(|| build(name, package)).clone()
}

fn build(name: &str, package: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let mut dirs = test.ancestors().skip(1);
    let dir = dirs.find(|dir| !dir.ends_with("deps")).expect("cargo's directories");
    let profile = dir.file_name().and_then(|name| name.to_str()).expect("cargo's directories");
    let profile = if profile == "debug" { "dev" } else { profile };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", package, "--bin", name, "--profile", profile]);
    build.arg("--target-dir").arg(dir.parent().expect("cargo's directories"));
    assert!(build.status().expect("cargo runs").success(), "{package} is not built");
    dir.join(name)
}
