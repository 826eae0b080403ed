//! The command line. `--help`, the man pages and the completions are generated from it.
//!
//! It does not depend on the rest of the program, because the build script uses it also.
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
/// IMAGE is a file or block device with an ext4 file system. IMAGE:/path is a file in it. The path
/// of an image may contain colons: IMAGE is the shortest part before `:/` that names a file.
///
/// Commands that read never write to an image. A journal that needs recovery is replayed in memory.
///
/// Exit codes: 0 done, 1 failed, 2 usage, 3 the image is corrupt, 4 unsupported feature.
#[derive(Debug, Parser)]
#[command(name = "syncline", version, disable_version_flag = true, max_term_width = 100)]
#[command(arg_required_else_help = true)]
pub struct Cli {
    /// Print the version.
    #[arg(short = 'V', long)]
    pub version: bool,
    /// With --version: also print the commit, the target and compiler of the build, and this host.
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
    Repair(Repair),
    Shell(Shell),
    Recover(Recover),
    Mkfs(Box<Mkfs>),
    Resize(Resize),
    Import(Import),
    Export(Export),
    Serve(Serve),
    #[cfg(target_os = "linux")]
    #[command(flatten)]
    Serving(Serving),
    Completions(Completions),
    Complete(Complete),
    Man(Man),
}

/// Commands that need Linux.
#[derive(Debug, Subcommand)]
pub enum Serving {
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
    Isolate(Isolate),
    Service(Service),
}

/// List directories of an image.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Ls {
    #[command(flatten)]
    pub part: Part,
    #[command(flatten)]
    pub rescued: Rescued,
    /// IMAGE:/path, or IMAGE for its root directory.
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub paths: Vec<OsString>,
    /// Use the long format: mode, links, owner, size, time (UTC).
    #[arg(short)]
    pub long: bool,
    /// Print sizes of the long format as 1.5K, 23M.
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// List subdirectories recursively.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// List names that begin with a dot also.
    #[arg(short, long)]
    pub all: bool,
    /// Print inode numbers.
    #[arg(short, long)]
    pub inode: bool,
    /// List directories themselves, not their contents.
    #[arg(short, long)]
    pub directory: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Print files of an image.
#[derive(Debug, Args)]
pub struct Cat {
    #[command(flatten)]
    pub part: Part,
    #[command(flatten)]
    pub rescued: Rescued,
    /// IMAGE:/path.
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub paths: Vec<OsString>,
}

/// Make directories in an image.
#[derive(Debug, Args)]
pub struct Mkdir {
    #[command(flatten)]
    pub part: Part,
    /// Make missing parent directories; accept a directory that exists.
    #[arg(short, long)]
    pub parents: bool,
    /// Permissions in octal.
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
    /// Remove directories and their contents.
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Ignore files that do not exist.
    #[arg(short, long)]
    pub force: bool,
    /// IMAGE:/path.
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub paths: Vec<OsString>,
}

/// Show the attributes of files of an image.
#[derive(Debug, Args)]
pub struct Stat {
    #[command(flatten)]
    pub part: Part,
    #[command(flatten)]
    pub rescued: Rescued,
    /// Also list the extents.
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
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// File or block device.
    pub image: PathBuf,
}

/// Check images. Nothing is written, and the verdict is that of `e2fsck -fn`.
///
/// Each finding has a name, a place and a description; --json adds what a repair does about it. A
/// notice does not change the verdict. The journal is not replayed: changes that wait in it are not
/// seen, and may look like damage (--replay).
///
/// Exit code 3: an image has errors. `syncline repair IMAGE` mends them.
#[derive(Debug, Args)]
pub struct Check {
    #[command(flatten)]
    pub part: Part,
    /// Replay the journal in memory first.
    #[arg(long)]
    pub replay: bool,
    /// Also run e2fsck -fn. It may disagree: the exit code is 3 if one of the two finds errors.
    #[arg(long)]
    pub compare: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Files or block devices.
    #[arg(required = true, value_name = "IMAGE")]
    pub images: Vec<PathBuf>,
}

/// Repair an image, as e2fsck does: the journal is replayed, and then what `check` finds is mended.
///
/// Without -n, -p or -y it asks about each finding, on a terminal. Files and directories without a
/// name get one in lost+found. What cannot be mended stays as it is. A sound image keeps every
/// byte.
///
/// The old bytes go to the undo file first. If it is there and the image has a part of its repair,
/// that repair was interrupted, and the image is rolled back.
///
/// Exit codes are those of e2fsck. 0: clean. 1: mended, or rolled back. 4: errors are left. 8: the
/// repair failed.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("how"))]
pub struct Repair {
    #[command(flatten)]
    pub part: Part,
    /// List what a repair would do; write nothing.
    #[arg(short = 'n', long, group = "how")]
    pub dry_run: bool,
    /// Repair only if that loses nothing and needs no decision.
    #[arg(short = 'p', long, group = "how")]
    pub preen: bool,
    /// Mend everything that can be mended.
    #[arg(short = 'y', long, group = "how")]
    pub yes: bool,
    /// Restore the image as it was before the repair that wrote the undo file.
    #[arg(long, group = "how", requires = "undo")]
    pub roll_back: bool,
    /// New file for the bytes that change. It is kept. Without this option it is NAME.undo in the
    /// current directory, and is removed when the repair is complete.
    #[arg(long, value_name = "FILE")]
    pub undo: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// File or block device.
    pub image: PathBuf,
}

/// Run commands on the files of an image: ls, cd, cat, less, get, put, find, du and others.
///
/// Commands are read from the terminal or from standard input, or given with -c; `help` lists them.
/// They have the options of the commands of this program. `get` and `put` copy files out of and
/// into the image, from and to the current directory and below. On a terminal `less` uses $PAGER
/// and `edit` $VISUAL or $EDITOR; Tab completes, and the arrow keys bring back lines.
///
/// Nothing is written without -w. Each change is durable when its command has ended. A script ends
/// at the first command that fails, with its exit code.
#[derive(Debug, Args)]
pub struct Shell {
    /// Open the image for writing also: put, edit, mkdir, mv, rm.
    #[arg(short, long, conflicts_with_all = ["rescue", "undelete"])]
    pub write: bool,
    /// Run these commands, separated by `;`, instead of those of standard input; may be repeated.
    #[arg(short, value_name = "COMMANDS")]
    pub command: Vec<String>,
    #[command(flatten)]
    pub part: Part,
    #[command(flatten)]
    pub rescued: Rescued,
    /// File or block device.
    pub image: PathBuf,
}

/// Replay the journal of an image, and finish the deletions and truncations that a crash cut short.
#[derive(Debug, Args)]
pub struct Recover {
    #[command(flatten)]
    pub part: Part,
    /// File or block device.
    pub image: PathBuf,
}

/// Mount an image or partition on a directory, through FUSE.
///
/// The command returns when the mount is ready. A background process serves it until it is
/// unmounted. Users other than root need fusermount3 and must own the directory.
///
/// The options of -o are listed below.
///
/// A line of /etc/fstab is `/path/image /mnt fuse.syncline noatime,nofail 0 0`. It needs links to
/// this program as /sbin/mount.fuse.syncline and /sbin/umount.fuse.syncline. `mount -o remount`
/// changes the flags ro, rw, suid, dev and exec of an existing mount.
#[derive(Debug, Clone, Args)]
pub struct Mount {
    /// Stay in the foreground; Ctrl-C unmounts.
    #[arg(short, long)]
    pub foreground: bool,
    /// Mount options, as for mount(8).
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Run as the process that serves a background mount.
    #[arg(long, hide = true)]
    pub served: bool,
    /// Run as the process that keeps the rights of a mount.
    #[arg(long, hide = true)]
    pub keeper: bool,
    #[command(flatten)]
    pub part: Part,
    /// File or block device with an ext4 file system.
    pub image: PathBuf,
    /// An existing directory.
    pub dir: PathBuf,
}

/// Unmount a directory, and wait until all data is on the image.
///
/// umount(8) and fusermount3 -u also work, but return while the last data is being written.
#[derive(Debug, Args)]
pub struct Umount {
    /// Detach the mount now even if files are open; the image is clean once they are closed.
    #[arg(short, long)]
    pub lazy: bool,
    /// Mount point.
    pub dir: PathBuf,
}

/// Show the state of a mount: journal, dirty data, latency of syncs, bytes written and read.
#[derive(Debug, Args)]
pub struct Status {
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Mount point.
    pub dir: PathBuf,
}

/// Work with FlashLite logs: files that are written in random order, as downloads are.
///
/// A program that uses the library writes a log while a download runs. `rearrange` converts the log
/// to a plain file.
#[derive(Debug, Args)]
pub struct Flashlite {
    #[command(subcommand)]
    pub command: FlashliteCommand,
}

#[derive(Debug, Subcommand)]
pub enum FlashliteCommand {
    /// Print the size, the records, the durable part, and the part that a crash tore off.
    Info(FlashliteInfo),
    Write(FlashliteWrite),
    /// Print the file; ranges that were never written are zeros.
    Cat(FlashliteLog),
    Rearrange(FlashliteRearrange),
    /// Compare all data with its checksums; exit code 3: some of it is damaged.
    Check(FlashliteLog),
}

#[derive(Debug, Args)]
pub struct FlashliteLog {
    /// The log; it is only read.
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
}

/// Write a piece of a file to a log, at any offset; a missing log is created.
///
/// The log is durable when the command ends.
///
/// Examples: `curl -s -r 4194304-8388607 URL | syncline flashlite write film.log --offset 4M`;
/// `syncline flashlite write film.log film.iso --shuffle 64K` writes a whole file in random order.
#[derive(Debug, Args)]
pub struct FlashliteWrite {
    /// The log, or the name of a new one.
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
    /// File with the data [default: standard input].
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Offset in the file: bytes, or with K, M, G.
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
    /// The log; it is only read.
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Write a log as a plain file, from start to end, and verify checksums.
///
/// The data goes to FILE.part, which is renamed to FILE when it is complete and durable. After
/// Ctrl-C or a crash the same command continues at the place where it stopped.
#[derive(Debug, Args)]
pub struct FlashliteRearrange {
    /// The log.
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
    /// The file to create; it must not exist.
    #[arg(value_name = "FILE", required_unless_present = "in_place", conflicts_with = "in_place")]
    pub file: Option<PathBuf>,
    /// Free the log's space during the copy and remove the log at the end: at most 64 MiB or a
    /// 64th of the file is stored twice.
    #[arg(long)]
    pub release: bool,
    /// Replace the log by the file, under the log's name; frees space as --release does.
    #[arg(long)]
    pub in_place: bool,
}

/// Record periodic data before and after faults, in one file for each fault.
///
/// The last --pre records are kept in memory. A fault (SIGUSR1, or --fault-at) saves them and the
/// next --post records in DIR as one event. Events may overlap. Records are read from standard
/// input, --record-size bytes each; --generate makes one each period instead. Ctrl-C ends the
/// current events and makes them durable.
///
/// Strategies: paper allocates a file at the fault and syncs it once at the end. pool allocates
/// files in advance and syncs each 2 MB. uring is pool with direct I/O. With --image events are
/// files of an ext4 image, synced each 2 MB.
///
/// Examples: `sensor | syncline record DIR --record-size 4K`, and `kill -USR1 PID` at a fault;
/// `syncline record DIR --generate --records 4000 --fault-at 1500,1800`.
#[derive(Debug, Args)]
pub struct Record {
    /// Directory for the files of the events.
    #[arg(value_name = "DIR", required_unless_present = "image")]
    pub dir: Option<PathBuf>,
    /// Write events to the root directory of this ext4 image instead.
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["dir", "strategy"])]
    pub image: Option<PathBuf>,
    /// Strategy that writes events.
    #[arg(long, value_name = "NAME", default_value = "paper",
        value_parser = ["paper", "pool", "uring"])]
    pub strategy: String,
    /// Generate records instead of reading standard input.
    #[arg(long)]
    pub generate: bool,
    /// Size of a record: bytes, or with K, M.
    #[arg(long, value_name = "SIZE", default_value = "16K", value_parser = size_bytes)]
    pub record_size: u64,
    /// Microseconds between two records of --generate.
    #[arg(long, value_name = "US", default_value_t = 5000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub period_us: u64,
    /// End after this number of records.
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Records kept before a fault.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub pre: u32,
    /// Records after a fault.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub post: u32,
    /// Records by which the writer may lag.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub slack: u32,
    /// Concurrent events; further faults are refused.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub events: u32,
    /// Cause a fault before each of these records, counted from 0.
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub fault_at: Vec<u64>,
}

/// List, verify, extract or follow the events that `record` wrote.
///
/// All complete records are found, even after a power cut. Gaps and damage are reported. Exit code
/// 3, with --verify or --extract: an event is incomplete.
///
/// Examples: `syncline record-read DIR --verify`; `syncline record-read FILE --extract data.bin`;
/// `syncline record-read FILE --follow`.
#[derive(Debug, Args)]
pub struct RecordRead {
    /// Files of events, or directories with such files.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Fail if an event is incomplete.
    #[arg(long)]
    pub verify: bool,
    /// Write the records of one event to FILE; `-` is standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "verify")]
    pub extract: Option<PathBuf>,
    /// Print the records of one event as they are written, until it ends.
    #[arg(long, conflicts_with_all = ["verify", "extract", "json"])]
    pub follow: bool,
    /// Print the list as one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// As [`size_bytes`], and 0.
pub fn offset_bytes(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { size_bytes(text) }
}
