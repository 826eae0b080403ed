//! The command line: what `--help`, the man pages and the completions are made of.
//!
//! Nothing in here depends on the rest of the program, because the build script uses it too.
//! This file is long because it declares every command and option together with its help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

#[path = "args/buffer.rs"]
mod buffer;
#[path = "args/control.rs"]
mod control;
#[path = "args/examples.rs"]
pub mod examples;
#[path = "args/generated.rs"]
mod generated;
#[path = "args/image.rs"]
mod image;
#[path = "args/sizes.rs"]
mod sizes;

pub use buffer::*;
pub use control::*;
pub use generated::*;
pub use image::*;
pub use sizes::*;

/// ext4 images and flash devices in user space, without root.
///
/// IMAGE is a file or block device that holds an ext4. IMAGE:/path is a file in it. The path of an
/// image may contain colons: the shortest part before `:/` that names a file is the image.
///
/// Commands that only read never write to an image. If its journal has to be replayed first, they
/// replay it in memory.
///
/// Exit codes: 0 done, 1 failed, 2 usage, 3 the image is corrupt, 4 unsupported feature.
#[derive(Debug, Parser)]
#[command(name = "syncline", version, disable_version_flag = true, max_term_width = 100)]
#[command(arg_required_else_help = true)]
pub struct Cli {
    /// Print the version.
    #[arg(short = 'V', long)]
    pub version: bool,
    /// With --version: also the commit, the target and compiler of the build, and this host.
    #[arg(long, requires = "version")]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Ls(Ls),
    Cat(Cat),
    Cp(Cp),
    Mkdir(Mkdir),
    Mv(Mv),
    Rm(Rm),
    Stat(Stat),
    Info(Info),
    Check(Check),
    Recover(Recover),
    Mkfs(Mkfs),
    Resize(Resize),
    Import(Import),
    Export(Export),
    Serve(Serve),
    Mount(Mount),
    Umount(Umount),
    Status(Status),
    Buffer(Buffer),
    Flashlite(Flashlite),
    Record(Record),
    RecordRead(RecordRead),
    Ctl(Ctl),
    Top(Top),
    Preload(Preload),
    Completions(Completions),
    Man(Man),
}

/// List directories of an image.
#[derive(Debug, Args)]
pub struct Ls {
    #[command(flatten)]
    pub part: Part,
    /// IMAGE:/path.
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub paths: Vec<OsString>,
    /// Long format: mode, links, owner, size, time (UTC).
    #[arg(short)]
    pub long: bool,
    /// Directories below, too.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Names that begin with a dot, too.
    #[arg(short, long)]
    pub all: bool,
    /// Inode numbers.
    #[arg(short, long)]
    pub inode: bool,
    /// A directory itself, not what is in it.
    #[arg(short, long)]
    pub directory: bool,
}

/// Print files of an image.
#[derive(Debug, Args)]
pub struct Cat {
    #[command(flatten)]
    pub part: Part,
    /// IMAGE:/path.
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub paths: Vec<OsString>,
}

/// Make directories in an image.
#[derive(Debug, Args)]
pub struct Mkdir {
    #[command(flatten)]
    pub part: Part,
    /// Directories above it, too; no error if it exists.
    #[arg(short, long)]
    pub parents: bool,
    /// Permissions, octal.
    #[arg(short, long, value_name = "MODE", default_value = "755")]
    pub mode: String,
    /// IMAGE:/path.
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub paths: Vec<OsString>,
}

/// Rename or move a file within an image.
#[derive(Debug, Args)]
pub struct Mv {
    #[command(flatten)]
    pub part: Part,
    /// Fail if the new name exists.
    #[arg(short, long)]
    pub no_clobber: bool,
    /// IMAGE:/path.
    #[arg(value_name = "IMAGE:/FROM")]
    pub from: OsString,
    /// IMAGE:/path in the same image.
    #[arg(value_name = "IMAGE:/TO")]
    pub to: OsString,
}

/// Remove files from an image.
#[derive(Debug, Args)]
pub struct Rm {
    #[command(flatten)]
    pub part: Part,
    /// Directories with what is in them.
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// No error if a file does not exist.
    #[arg(short, long)]
    pub force: bool,
    /// IMAGE:/path.
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub paths: Vec<OsString>,
}

/// Show everything about a file of an image.
#[derive(Debug, Args)]
pub struct Stat {
    #[command(flatten)]
    pub part: Part,
    /// Show its blocks, too.
    #[arg(long)]
    pub extents: bool,
    /// IMAGE:/path.
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub paths: Vec<OsString>,
}

/// Show features, journal and free space of an image.
#[derive(Debug, Args)]
pub struct Info {
    #[command(flatten)]
    pub part: Part,
    /// As one JSON document.
    #[arg(long)]
    pub json: bool,
    /// File or block device.
    pub image: PathBuf,
}

/// Check an image, and have e2fsck check it too. Nothing is written.
///
/// Exit code 3: something is wrong. Repair with `e2fsck -f IMAGE`.
#[derive(Debug, Args)]
pub struct Check {
    #[command(flatten)]
    pub part: Part,
    /// Do not run e2fsck.
    #[arg(long)]
    pub no_e2fsck: bool,
    /// File or block device.
    pub image: PathBuf,
}

/// Replay the journal of an image, and finish what was deleted or truncated in the crash.
#[derive(Debug, Args)]
pub struct Recover {
    #[command(flatten)]
    pub part: Part,
    /// File or block device.
    pub image: PathBuf,
}

/// Mount an image or partition on a directory, through FUSE.
///
/// Returns when the mount is ready; a process in the background serves it until it is unmounted.
/// Without root it needs fusermount3 and a directory of yours.
///
/// The options of -o are listed below.
///
/// In /etc/fstab: `/path/image /mnt fuse.syncline noatime,nofail 0 0`, with links of this
/// program as /sbin/mount.fuse.syncline and /sbin/umount.fuse.syncline. With `remount` the flags
/// ro, rw, suid, dev and exec of a mount that is there change, as `mount -o remount,ro /mnt` does.
#[derive(Debug, Args)]
pub struct Mount {
    /// Stay in the foreground; Ctrl-C unmounts.
    #[arg(short, long)]
    pub foreground: bool,
    /// Mount options, as for mount(8).
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// The serving process that a mount in the background starts.
    #[arg(long, hide = true)]
    pub served: bool,
    /// File or block device with an ext4.
    pub image: PathBuf,
    /// An existing directory.
    pub dir: PathBuf,
}

/// Unmount a directory, and wait until everything is on the image.
///
/// umount(8) and fusermount3 -u work, too, but return while the last data is being written.
#[derive(Debug, Args)]
pub struct Umount {
    /// Detach it now, also when files are open; the image is clean when they are closed.
    #[arg(short, long)]
    pub lazy: bool,
    /// Mount point.
    pub dir: PathBuf,
}

/// Show what a mount is doing: journal, dirty data, latency of syncs, bytes so far.
#[derive(Debug, Args)]
pub struct Status {
    /// As one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Mount point.
    pub dir: PathBuf,
}

/// Work with FlashLite logs: files that were written in random order, as downloads are.
///
/// A log is what a program that uses the library leaves while a download runs. `rearrange` makes it
/// a normal file.
#[derive(Debug, Args)]
pub struct Flashlite {
    #[command(subcommand)]
    pub command: FlashliteCommand,
}

#[derive(Debug, Subcommand)]
pub enum FlashliteCommand {
    /// Print size, records, what is durable, and what a crash tore off.
    Info(FlashliteInfo),
    Write(FlashliteWrite),
    /// Print the file; what was never written is zeros.
    Cat(FlashliteLog),
    Rearrange(FlashliteRearrange),
    /// Compare all data with its checksums; exit code 3 if some of it is damaged.
    Check(FlashliteLog),
}

#[derive(Debug, Args)]
pub struct FlashliteLog {
    /// A log. It is only read.
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
}

/// Write a piece of the file into a log, at any place; the log is made if it is not there.
///
/// The log is durable when the command ends.
///
/// Examples: `curl -s -r 4194304-8388607 URL | syncline flashlite write film.log --offset 4M`;
/// `syncline flashlite write film.log film.iso --shuffle 64K` writes all of a file in random order.
#[derive(Debug, Args)]
pub struct FlashliteWrite {
    /// A log, or the name of a new one.
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
    /// File with the contents [default: standard input].
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Position in the file: bytes, or with K, M, G.
    #[arg(long, value_name = "BYTES", value_parser = offset_bytes, default_value = "0")]
    pub offset: u64,
    /// Size of the whole file: bytes, or with K, M, G.
    #[arg(long, value_name = "SIZE", value_parser = size_bytes)]
    pub size: Option<u64>,
    /// Write FILE in pieces of this size in random order, as a download does.
    #[arg(long, value_name = "SIZE", value_parser = size_bytes, requires = "file")]
    pub shuffle: Option<u64>,
    /// Seed of --shuffle.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

#[derive(Debug, Args)]
pub struct FlashliteInfo {
    /// A log. It is only read.
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
    /// As one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Write a log as a normal file, from start to end, comparing checksums.
///
/// FILE.part grows and becomes FILE when it is complete and durable. Stopped by Ctrl-C or a crash,
/// the same command goes on where it was.
#[derive(Debug, Args)]
pub struct FlashliteRearrange {
    /// A log.
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
    /// The file to be made; it must not exist.
    #[arg(value_name = "FILE", required_unless_present = "in_place", conflicts_with = "in_place")]
    pub file: Option<PathBuf>,
    /// Give the log's space back on the way and remove it at the end: at most 64 MiB or a 64th of
    /// the file is there twice.
    #[arg(long)]
    pub release: bool,
    /// The file takes the name of the log, and its space as --release does.
    #[arg(long)]
    pub in_place: bool,
}

/// Record periodic data around faults: what came before one and what follows, one file for each.
///
/// The last --pre records are kept in memory. A fault (SIGUSR1, or --fault-at) saves them and the
/// next --post records in DIR, also while earlier events are being finished. Records come from
/// standard input, in pieces of --record-size, or from --generate, one each period. Ctrl-C ends
/// the events under way and makes them durable.
///
/// Strategies: paper allocates a file at the fault and syncs it in the end; pool has files ready
/// before, and what is written becomes durable each 2 MB; uring is a pool with direct I/O. With
/// --image events are files of an ext4 image, synced each 2 MB.
///
/// Examples: `sensor | syncline record DIR --record-size 4K`, and `kill -USR1 PID` at a fault;
/// `syncline record DIR --generate --records 4000 --fault-at 1500,1800`.
#[derive(Debug, Args)]
pub struct Record {
    /// Directory for the files of events.
    #[arg(value_name = "DIR", required_unless_present = "image")]
    pub dir: Option<PathBuf>,
    /// Into the root of this ext4 image instead.
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["dir", "strategy"])]
    pub image: Option<PathBuf>,
    /// Strategy that writes events.
    #[arg(long, value_name = "NAME", default_value = "paper",
        value_parser = ["paper", "pool", "uring"])]
    pub strategy: String,
    /// Make up records instead of reading standard input.
    #[arg(long)]
    pub generate: bool,
    /// Bytes of a record, or with K, M.
    #[arg(long, value_name = "SIZE", default_value = "16K", value_parser = size_bytes)]
    pub record_size: u64,
    /// Microseconds between two records of --generate.
    #[arg(long, value_name = "US", default_value_t = 5000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub period_us: u64,
    /// End after so many records.
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Records kept before a fault.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub pre: u32,
    /// Records after a fault.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub post: u32,
    /// Records that the writer may be behind.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub slack: u32,
    /// Events at one time; more are refused.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub events: u32,
    /// A fault before each of these records, counted from 0.
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub fault_at: Vec<u64>,
}

/// List, verify, extract or follow what `record` wrote.
///
/// Every whole record is found, also after a power cut; gaps and damage are named. Exit code 3: an
/// event is not whole (with --verify or --extract).
///
/// Examples: `syncline record-read DIR --verify`; `syncline record-read FILE --extract data.bin`;
/// `syncline record-read FILE --follow`.
#[derive(Debug, Args)]
pub struct RecordRead {
    /// Files of events, or directories of them.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Fail if an event is not whole.
    #[arg(long)]
    pub verify: bool,
    /// Write the records of one event, one after the other; `-` is standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "verify")]
    pub extract: Option<PathBuf>,
    /// Print records of one event as they are written, until it ends.
    #[arg(long, conflicts_with_all = ["verify", "extract", "json"])]
    pub follow: bool,
    /// The list as one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// As [`size_bytes`], and 0.
pub fn offset_bytes(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { size_bytes(text) }
}
