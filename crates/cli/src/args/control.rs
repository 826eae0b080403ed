//! The command lines that control durability: `preload`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Run a program whose syncs of chosen files wait until it ends, on any file system.
///
/// Every file is strict unless a rule names it. A GLOB without a slash is the name of a file, with
/// one its whole path. A relaxed file is not synced when the program asks but when the program
/// ends, or before the file gets a strict name: a power cut in between may lose or tear it.
/// Programs that do not use the C library (Go, static ones) and io_uring are not covered.
///
/// Examples: `syncline preload --relaxed '*' -- apt-get install PACKAGE`;
/// `syncline preload --relaxed '/home/*/.cache/**' --report - -- firefox`.
#[derive(Debug, Args)]
pub struct Preload {
    /// Files whose syncs wait.
    #[arg(long, value_name = "GLOB")]
    pub relaxed: Vec<String>,
    /// Files that are strict all the same.
    #[arg(long, value_name = "GLOB")]
    pub strict: Vec<String>,
    /// More rules, before these: lines of `relaxed GLOB` and `strict GLOB`; the last one that
    /// matches decides.
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Where each process appends a line of JSON about what was skipped; `-` is standard error.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The library [default: libsyncline_preload.so beside this program or in ../lib].
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
