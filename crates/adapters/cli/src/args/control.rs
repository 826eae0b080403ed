//! The command lines that control durability: `preload`, `ctl`, `top`.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Run a program and defer its syncs of chosen files until it ends, or write its downloads as logs.
///
/// Every file is strict unless a rule matches it. A GLOB without a slash matches the name of a
/// file, one with a slash its whole path. A relaxed file is synced when the program ends, or before
/// the file gets a strict name, and not when the program asks. A power cut before that may lose or
/// tear the file. The data of a file of --log is in NAME.flashlite until the program ends, and the
/// file itself has holes. After a kill the same command continues. Programs that do not use the C
/// library (Go, static programs) and io_uring are not covered.
///
/// Examples: `syncline preload --relaxed '*' -- apt-get install PACKAGE`; `syncline preload --log
/// '*.iso' -- aria2c -x16 URL`;
/// `syncline preload --relaxed '/home/*/.cache/**' --report - -- firefox`.
#[derive(Debug, Args)]
pub struct Preload {
    /// Files whose syncs are deferred.
    #[arg(long, value_name = "GLOB")]
    pub relaxed: Vec<String>,
    /// Files that stay strict although --relaxed matches.
    #[arg(long, value_name = "GLOB")]
    pub strict: Vec<String>,
    /// Files that are written in any order, as segmented downloads are: each is a FlashLite log
    /// until the program ends, then a plain file.
    #[arg(long, value_name = "GLOB")]
    pub log: Vec<String>,
    /// File of rules that precede these: lines `relaxed GLOB`, `strict GLOB` and `log GLOB`. The
    /// last matching rule decides.
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// File to which each process appends a JSON line about the syncs that it deferred; `-` is
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

/// Control a mount or a write buffer: durability and placement of files, settings.
///
/// Settings of a buffer: ram=SIZE or off, log=on or off, threshold=SIZE, relaxed_expire=SECONDS,
/// relaxed_max=SIZE or off, idle_after=SECONDS. Settings of a mount: relaxed=on or off (off makes
/// every file strict and does the deferred syncs), dirty_expire=SECONDS, dirty_ratio=PERCENT,
/// dirty_background_ratio=PERCENT, and the settings of its buffer (`-o buffer_log=`).
///
/// Policies, each on or off: auto-ram grows the memory after 3 s above 80 % use and shrinks it
/// after 5 s below 10 %, within ram_limits=MIN-MAX. session cleans the log while the user is away
/// (from logind). power disables memory and relaxed files while the battery is low or the machine
/// shuts down (from UPower and logind).
///
/// Only root and the user who runs the server may use it. Examples: `syncline ctl relax
/// ~/card/.cache`; `syncline ctl set DIR ram=32M power=on`.
#[derive(Debug, Args)]
pub struct Ctl {
    #[command(subcommand)]
    pub command: CtlCommand,
}

#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Make fsync of these files return at once. For a directory: of files created in it later.
    Relax(CtlPaths),
    /// Make fsync of these files durable, whatever rule their names match.
    Strict(CtlPaths),
    /// Move the blocks of these files to the mount's zones for often updated files, permanently.
    /// For a directory: of the files in it. Needs `-o alloc=hot_zones` or `-o alloc=lifetime`.
    Relocate(CtlPaths),
    /// Change settings of a mount or a write buffer, all of them or none.
    Set(CtlSet),
    /// Make all data on a mount durable now, in every sync mode.
    Sync(CtlDir),
    /// Write all buffered data to its home blocks now.
    Clean(CtlDir),
    /// Print the status as JSON.
    Status(CtlDir),
    /// End a mount as a crash would: make all data durable, then fail every read and write. Unmount
    /// it afterwards; the next mount recovers the image.
    Shutdown(CtlShutdown),
}

#[derive(Debug, Args)]
pub struct CtlShutdown {
    /// Drop data that was not synced, as a power cut does.
    #[arg(long)]
    pub no_flush: bool,
    /// Directory of the mount or the write buffer.
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
    /// Directory of the mount or the write buffer.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Settings to change.
    #[arg(required = true, value_name = "NAME=VALUE")]
    pub settings: Vec<String>,
}

#[derive(Debug, Args)]
pub struct CtlDir {
    /// Directory of the mount or the write buffer.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Watch a mount or a write buffer: fill levels, hit ratios, latencies, rates, traffic by file.
///
/// Runs in the terminal until q. A write buffer has no traffic by file.
#[derive(Debug, Args)]
pub struct Top {
    /// Print one screen as text, with the rates of one interval.
    #[arg(long)]
    pub once: bool,
    /// Serve a page that refreshes itself, for browsers on this machine; port 0 picks a free one.
    /// /metrics has all numbers of the status for Prometheus.
    #[arg(long, value_name = "[ADDRESS:]PORT", conflicts_with = "once", value_parser = address)]
    pub web: Option<SocketAddr>,
    /// Milliseconds between two updates.
    #[arg(long, value_name = "MS", default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub interval: u64,
    /// Directory of the mount or the write buffer.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// An address with a port; a port alone is one of this machine.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let local = || text.parse().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    local().or_else(|_| text.parse()).map_err(|_| "neither a port nor an address:port".to_owned())
}
