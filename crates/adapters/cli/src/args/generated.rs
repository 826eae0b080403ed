//! The command line of `completions` and `man`.

use std::path::PathBuf;

use clap::Args;

/// Print a shell's completion script.
#[derive(Debug, Args)]
pub struct Completions {
    /// Shell.
    #[arg(value_parser = ["bash", "elvish", "fish", "powershell", "zsh"])]
    pub shell: String,
}

/// Print a man page (roff): `syncline man cp | man -l -`.
#[derive(Debug, Args)]
pub struct Man {
    /// Command [default: the page of the program].
    pub command: Option<String>,
    /// Write all pages to this directory instead.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub all: Option<PathBuf>,
}
