//! The command line of `syncline buffer`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::size_bytes;

/// Put a write buffer with a log in front of a device, for any file system on it.
///
/// Small writes that are flushed go to LOG in one sequential write and reach their places later,
/// sorted; large ones go there at once. What was flushed survives power cuts: attach again after
/// one, before anything else uses DEVICE. Durability is that of the whole device; on ext4, `relax`
/// takes single files out.
///
/// Example: `syncline buffer attach card.img DIR --log card.log --create --attach`, then
/// `mount /dev/loop0 /mnt`, later `umount /mnt` and `syncline buffer detach DIR`.
#[derive(Debug, Args)]
pub struct Buffer {
    #[command(subcommand)]
    pub command: BufferCommand,
}

#[derive(Debug, Subcommand)]
pub enum BufferCommand {
    Attach(BufferAttach),
    /// Write everything to its place and end: DEVICE is plain data then, and LOG empty.
    Detach(BufferDir),
    Status(BufferStatus),
    Relax(BufferFiles),
    /// Make files strict again; what waits of them is durable then.
    Strict(BufferFiles),
    Zeros(BufferZeros),
}

/// Relax files of a mounted ext4 over the buffer: what is written over their data may wait in
/// memory across syncs.
///
/// The buffer follows the files in the journal, also when they grow, until they are deleted or the
/// file system is unmounted or frozen. A power cut leaves each of their sectors old or new; their
/// sizes, and all other files, stay as strict as they are. New data is strict the first time. For
/// syncs that do not wait add `syncline preload --relaxed`. Needs root, Linux 5.15, and a journal
/// without fast_commit and journal_async_commit.
#[derive(Debug, Args)]
pub struct BufferFiles {
    /// The directory that is served.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Files, or directories for all files that are in them now.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// Count the pages of files that can describe themselves in a log.
///
/// A page of 4 KiB needs as many zero words of four bytes as its first nine are not zero; others
/// share a header with their batch. Beside it, the condition of the informed-storage paper: two
/// zero words.
#[derive(Debug, Args)]
pub struct BufferZeros {
    /// Files of any kind; a last page that is not full is filled with zeros, as on disk.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// As one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Serve the buffered device as the file DIR/device, over NBD, or through ublk, until it is
/// detached.
///
/// Recovers the contents of LOG first. Prints the loop device with --attach, with --as ublk the
/// block device /dev/ublkbN (root, Linux 6.5 with ublk_drv), and with --as nbd the URI for qemu,
/// libnbd and nbd-client, which needs neither root nor FUSE. To make a block device of the URI, as
/// root: `modprobe nbd && nbd-client -unix DIR/nbd /dev/nbd0`. SIGTERM, or an unmount of DIR,
/// drains the log as detach does. A process that is killed leaves its flushed data in the log.
#[derive(Debug, Args)]
pub struct BufferAttach {
    /// File or block device to buffer.
    #[arg(value_name = "DEVICE")]
    pub device: PathBuf,
    /// An empty directory.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// File or block device of the log.
    #[arg(long, value_name = "LOG")]
    pub log: PathBuf,
    /// Make the log: LOG is overwritten, or made as a file. Without it LOG has to hold one.
    #[arg(long)]
    pub create: bool,
    /// Size of a file that --create makes: bytes, or with K, M, G.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size_bytes)]
    pub log_size: u64,
    /// With --create: overwrite LOG also if it is not empty.
    #[arg(long, requires = "create")]
    pub force: bool,
    /// Memory for staged writes: bytes, or with K, M, G.
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size_bytes)]
    pub ram: u64,
    /// Policies that are on: auto-ram, session, power; `syncline ctl set` switches them later.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',',
        value_parser = ["auto-ram", "session", "power"])]
    pub policy: Vec<String>,
    /// Kind of device to serve: a file in DIR (fuse), network blocks (nbd), or a block device of
    /// the kernel (ublk).
    #[arg(long = "as", value_name = "WAY", value_parser = ["fuse", "nbd", "ublk"],
        default_value = "fuse")]
    pub way: String,
    /// With --as nbd: unix:PATH, or 127.0.0.1:PORT, which anybody on this machine may use [default:
    /// unix:DIR/nbd].
    #[arg(long, value_name = "PLACE")]
    pub listen: Option<String>,
    /// With --as fuse: attach a loop device (root) and print its name.
    #[arg(long, conflicts_with = "listen")]
    pub attach: bool,
    /// Stay in the foreground.
    #[arg(short, long)]
    pub foreground: bool,
}

#[derive(Debug, Args)]
pub struct BufferDir {
    /// The directory that is served.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Show what the buffer holds and has done.
#[derive(Debug, Args)]
pub struct BufferStatus {
    /// As one JSON document.
    #[arg(long)]
    pub json: bool,
    /// The directory that is served.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}
