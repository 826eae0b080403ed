//! Developer tasks of the workspace.
//!
//! - `cargo xtask tidy` checks the house rules, see [`tidy`]; `--fix` breaks long comment lines.
//! - `cargo xtask ci` is `make test`: every check and every test, with a summary, see [`ci`].
//! - `cargo xtask figures` measures what the documents show and fills their tables, see
//!   [`figures`].
//! - `cargo xtask run` runs long tests, benchmarks and comparisons by name, see [`run`].
//! - `cargo xtask sbom PACKAGE...` prints what packages are made of, see [`sbom`].

#![forbid(unsafe_code)]

mod ci;
mod figures;
mod run;
mod sbom;
mod tidy;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The workspace: the parent of this package.
fn root() -> PathBuf {
    let mut dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    dir.pop();
    dir
}

/// The cargo that runs this program.
fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Directory of builds.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["tidy"] => tidy::run(&root()),
        ["tidy", "--fix"] => tidy::fix(&root()),
        ["ci", filter @ ..] => ci::run(&root(), filter),
        ["figures", rest @ ..] => figures::main(&root(), rest),
        ["run", rest @ ..] => run::main(&root(), rest),
        ["sbom", packages @ ..] => sbom::run(&root(), packages),
        _ => {
            eprintln!(
                "usage: cargo xtask tidy [--fix] | ci [STEP...] | figures [--fill|--check|ID...] | \
                 run [NAME] | sbom PACKAGE..."
            );
            eprintln!("steps of ci: {}", ci::STEP_NAMES.join(", "));
            ExitCode::from(2)
        }
    }
}
