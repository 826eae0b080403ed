//! The command lines that control durability: `preload`, `ctl`, `top`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Run a program whose syncs of chosen files wait until it ends, or whose downloads are logs.
///
/// Every file is strict unless a rule names it. A GLOB without a slash is the name of a file, with
/// one its whole path. A relaxed file is not synced when the program asks but when the program
/// ends, or before the file gets a strict name: a power cut in between may lose or tear it.
/// A file of --log has holes for bytes until then; they are in NAME.flashlite beside it, also after
/// a kill, and the same command goes on with them. Programs that do not use the C library (Go,
/// static ones) and io_uring are not covered.
///
/// Examples: `syncline preload --relaxed '*' -- apt-get install PACKAGE`; `syncline preload --log
/// '*.iso' -- aria2c -x16 URL`;
/// `syncline preload --relaxed '/home/*/.cache/**' --report - -- firefox`.
#[derive(Debug, Args)]
pub struct Preload {
    /// Files whose syncs wait.
    #[arg(long, value_name = "GLOB")]
    pub relaxed: Vec<String>,
    /// Files that are strict all the same.
    #[arg(long, value_name = "GLOB")]
    pub strict: Vec<String>,
    /// Files that are filled in any order, as by downloads in parts: each is a FlashLite log until
    /// the program ends, then a plain file.
    #[arg(long, value_name = "GLOB")]
    pub log: Vec<String>,
    /// More rules, before these: lines of `relaxed GLOB` and `strict GLOB`, of which the last one
    /// that matches decides, and of `log GLOB`.
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// File to which each process appends a line of JSON about the syncs it skipped; `-` is
    /// standard error.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The library [default: libsyncline_preload.so beside this program or in ../lib].
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Control what is served: durability and place of files on a mount, the parts of a write buffer.
///
/// Settings of a buffer: ram=SIZE or off, log=on or off, threshold=SIZE, relaxed_expire=SECONDS,
/// relaxed_max=SIZE or off, idle_after=SECONDS. Settings of a mount: relaxed=on or off (off: every
/// file is strict, and what waited is synced), dirty_expire=SECONDS, dirty_ratio=PERCENT,
/// dirty_background_ratio=PERCENT, and those of its buffer (`-o buffer_log=`). Policies, on or off:
/// auto-ram (grows over 80 % for 3 s, shrinks under 10 % for 5 s, within ram_limits=MIN-MAX),
/// session (cleans the log when the user is away, by logind), power (memory and relaxed files off
/// while the battery is low or the machine is being switched off, by UPower and logind).
///
/// Only the user who serves, and root, may use it. Examples: `syncline ctl relax ~/card/.cache`;
/// `syncline ctl set DIR ram=32M power=on`.
#[derive(Debug, Args)]
pub struct Ctl {
    #[command(subcommand)]
    pub command: CtlCommand,
}

#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// fsync of these files returns at once; of a directory: of what is made in it from now on.
    Relax(CtlPaths),
    /// fsync of these files means it, whatever their names say.
    Strict(CtlPaths),
    /// Move the blocks of these files into the mount's zones for files that are updated often, and
    /// keep them there; of a directory: of the files in it. Needs `-o alloc=hot_zones` or lifetime.
    Relocate(CtlPaths),
    /// Change settings of a mount or a write buffer while it serves: all of them, or none.
    Set(CtlSet),
    /// Make everything on a mount durable now, with `-o sync=periodic` too.
    Sync(CtlDir),
    /// Write everything that waits to its place now.
    Clean(CtlDir),
    /// Print what is served, as JSON.
    Status(CtlDir),
    /// End a mount as a crash would: everything durable, then nothing is read or written any more.
    /// Unmount it afterwards; the next mount recovers the image.
    Shutdown(CtlShutdown),
}

#[derive(Debug, Args)]
pub struct CtlShutdown {
    /// Leave out what was not synced, as a power cut does.
    #[arg(long)]
    pub no_flush: bool,
    /// The directory that is served.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

#[derive(Debug, Args)]
pub struct CtlPaths {
    /// Files or directories on a Syncline mount.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CtlSet {
    /// The directory that is served.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Settings to change.
    #[arg(required = true, value_name = "NAME=VALUE")]
    pub settings: Vec<String>,
}

#[derive(Debug, Args)]
pub struct CtlDir {
    /// The directory that is served.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Watch a mount or a write buffer: fill levels, hit ratios, latencies, rates, traffic by file.
///
/// In the terminal, until q. A write buffer knows no files.
#[derive(Debug, Args)]
pub struct Top {
    /// Print one picture as text, with the rates of one interval.
    #[arg(long)]
    pub once: bool,
    /// Show it as a page that renews itself, to browsers of this machine; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "once")]
    pub web: Option<std::net::SocketAddr>,
    /// Milliseconds between two looks.
    #[arg(long, value_name = "MS", default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub interval: u64,
    /// Directory of the mount or the served device.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}
