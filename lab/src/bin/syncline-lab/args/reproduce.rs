//! The command line of `syncline-lab reproduce`.

use std::path::PathBuf;

use clap::Args;

/// Measure the source papers' tables and figures again, and print both.
///
/// Each row is a table or figure of a paper, with its values and the runs that reproduce them. Runs
/// are in virtual time, with the same figures on every machine. PAPER is one of eager-sync,
/// coarse-mtime, write-latency, hot-zones, informed-storage [default: all]. The short form takes
/// minutes. Rows in real time, and rows whose data is not public, are listed but not run.
#[derive(Debug, Args)]
pub struct Reproduce {
    /// Papers, or single rows as PAPER/TABLE.
    #[arg(value_name = "PAPER[/TABLE]")]
    pub rows: Vec<String>,
    /// List the rows without running them.
    #[arg(short, long)]
    pub list: bool,
    /// Use the papers' lengths, and run the rows that the short form skips.
    #[arg(long)]
    pub full: bool,
    /// Run also with the least and the greatest value of each parameter of a device that published
    /// figures leave open, and show the range.
    #[arg(long, conflicts_with = "list")]
    pub uncertainty: bool,
    /// Also run the rows in real time; they need a quiet machine.
    #[arg(long)]
    pub real_time: bool,
    /// Keep finished runs in FILE, and take over those that this build has left there: a long run
    /// goes on where it was stopped.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub resume: Option<PathBuf>,
    /// Write the figures as JSON; `-` prints them to standard output instead of the tables.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report with charts of both values: one self-contained HTML file.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub html: Option<PathBuf>,
}
