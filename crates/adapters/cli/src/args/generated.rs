//! The command line of `completions` and `man`, and of the commands that programs call.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Print a shell's completion script.
///
/// In bash, fish and zsh it completes values of options and files of images too: the script calls
/// this program.
#[derive(Debug, Args)]
pub struct Completions {
    /// Shell.
    #[arg(value_parser = ["bash", "elvish", "fish", "powershell", "zsh"])]
    pub shell: String,
}

/// Print a man page (roff), for `man -l -`.
#[derive(Debug, Args)]
pub struct Man {
    /// Command [default: the page of the program].
    pub command: Option<String>,
    /// Write all pages to this directory instead.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub all: Option<PathBuf>,
}

/// Print the candidates for the last of these words, one a line, for the scripts of `completions`.
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Complete {
    /// The words behind the name of the program.
    #[arg(last = true)]
    pub words: Vec<OsString>,
}

/// Read an image for a library whose open has the option `isolate`. Standard input is a socket.
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Isolate {}

/// Mount an image for a program that mounts, `fuservicemount3` of libfuse. Standard input is a
/// socket to it.
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Service {
    /// Mount options that precede those of the user.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
}
