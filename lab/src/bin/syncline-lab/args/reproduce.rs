//! The command line of `syncline-lab reproduce`.

use std::path::PathBuf;

use clap::Args;

/// Show the source papers' tables and figures beside ours.
///
/// Each row is a table or figure of a paper: its values, and the runs that yield ours, in virtual
/// time, with the same figures on every machine. PAPER is one of eager-sync, coarse-mtime,
/// write-latency, hot-zones, informed-storage; without any, every row is run. The short form ends
/// within minutes. Rows in real time, and rows whose data is not public, are named and left out.
#[derive(Debug, Args)]
pub struct Reproduce {
    /// Papers, or rows of them: PAPER/TABLE.
    #[arg(value_name = "PAPER[/TABLE]")]
    pub rows: Vec<String>,
    /// List the rows and run nothing.
    #[arg(short, long)]
    pub list: bool,
    /// The papers' lengths, and runs that the short form leaves out.
    #[arg(long)]
    pub full: bool,
    /// Run the rows in real time as well; they need a quiet machine.
    #[arg(long)]
    pub real_time: bool,
    /// Write the figures as JSON; `-` is standard output, and takes the tables' place.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report, the papers' values beside ours as charts: one self-contained HTML file.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub html: Option<PathBuf>,
}
