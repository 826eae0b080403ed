//! The suites of `syncline-posix` on any directory.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use syncline_testkit::posix::{concurrent_readers, conform, fsx, matrix, stress};

/// Tests a directory for the behaviour that programs may expect.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Subcommand)]
enum Suite {
    /// System calls and their errors, one line for each answer that is not the wanted one.
    Conform {
        /// An empty directory; the suite runs as root.
        dir: PathBuf,
        /// A directory on another file system.
        #[arg(long, default_value = "/dev/shm")]
        other: PathBuf,
        /// Only files of cases whose name has this in it.
        #[arg(long, default_value = "")]
        only: String,
        /// Prints every assertion.
        #[arg(long)]
        all: bool,
    },
    /// Random operations on one file against a model.
    Fsx {
        /// The file is made in it.
        dir: PathBuf,
        /// Number of operations.
        #[arg(long, default_value_t = 100_000)]
        operations: u64,
        /// Seed of the operations.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// A file that is written while others read and map it.
    Beside {
        /// The file is made in it.
        dir: PathBuf,
        /// Writes.
        #[arg(long, default_value_t = 20_000)]
        rounds: u64,
        /// Seed of the writes.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Every way to change a file beside every way to read it, from two processes.
    Matrix {
        /// The file is made in it.
        dir: PathBuf,
        /// Changes in each cell.
        #[arg(long, default_value_t = 2_000)]
        rounds: u64,
        /// Only cells whose name has this in it.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Threads with trees that check themselves.
    Stress {
        /// An empty directory.
        dir: PathBuf,
        /// Number of threads.
        #[arg(long, default_value_t = 32)]
        threads: u64,
        /// Duration in seconds.
        #[arg(long, default_value_t = 600)]
        seconds: u64,
        /// Files of one thread, at most.
        #[arg(long, default_value_t = 40)]
        files: usize,
        /// The volume may be too small for them: what finds no room is undone.
        #[arg(long)]
        full: bool,
        /// Seed of the operations.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

fn main() -> ExitCode {
    if matrix::other_process() {
        return ExitCode::SUCCESS;
    }
    match run(Cli::parse().suite) {
        Ok(()) => ExitCode::SUCCESS,
        Err(said) => {
            eprintln!("syncline-posix: {said}");
            ExitCode::FAILURE
        }
    }
}

fn run(suite: Suite) -> Result<(), String> {
    match suite {
        Suite::Conform { dir, other, only, all } => {
            let scratch = tempfile::tempdir_in(&other)
                .map_err(|err| format!("{}: {err}; give another --other", other.display()))?;
            let checks = conform::run(&dir, scratch.path(), &only)?;
            let bad = checks.iter().filter(|check| !check.agrees()).count();
            for check in checks.iter().filter(|check| all || !check.agrees()) {
                println!("{} (wanted {}, got {})", check.name, check.wanted, check.got);
            }
            println!("{} assertions, {bad} disagree", checks.len());
            if bad == 0 { Ok(()) } else { Err("not every answer is the wanted one".to_owned()) }
        }
        Suite::Fsx { dir, operations, seed } => {
            fsx::run(&dir.join("fsx"), seed, operations)?;
            println!("{operations} operations agree");
            Ok(())
        }
        Suite::Beside { dir, rounds, seed } => {
            concurrent_readers::run(&dir.join("concurrent-readers"), seed, rounds)?;
            println!("{rounds} writes seen at once");
            Ok(())
        }
        Suite::Matrix { dir, rounds, only } => all_cells(&dir, rounds, &only),
        Suite::Stress { dir, threads, seconds, files, full, seed } => {
            let end = Instant::now() + Duration::from_secs(seconds);
            let load = stress::Load { threads, files_max: files, may_be_full: full, seed };
            let trees = stress::run(&dir, load, &|_| Instant::now() < end)?;
            let files: usize = trees.iter().map(stress::Tree::len).sum();
            println!("{threads} threads, {files} files left, all as they should be");
            Ok(())
        }
    }
}

fn all_cells(dir: &Path, rounds: u64, only: &str) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|err| err.to_string())?;
    let mut stale = 0;
    for cell in matrix::Cell::all().into_iter().filter(|cell| cell.to_string().contains(only)) {
        match matrix::run(dir, cell, rounds, Command::new(&own))? {
            matrix::Seen::Right => {}
            matrix::Seen::Refused(why) => println!("{cell}: not done, {why}"),
            matrix::Seen::Stale(what) => {
                println!("{cell}: {what}");
                stale += 1;
            }
        }
    }
    println!("{stale} cells are stale");
    if stale == 0 { Ok(()) } else { Err("not every read saw what was written".to_owned()) }
}
