//! The command line of `syncline buffer`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::size_bytes;

/// Put a write buffer with a log in front of a device, for any file system on it.
///
/// A flush writes small writes to LOG in one sequential write. They reach their home blocks later,
/// in sorted order. Large writes go to their home blocks at once. Flushed data survives power cuts:
/// after one, attach again before any other program uses DEVICE. Flushes apply to the whole device;
/// on ext4, `relax` exempts single files.
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
    /// Write all data to its home blocks and end. DEVICE no longer needs LOG then.
    Detach(BufferDir),
    Status(BufferStatus),
    Relax(BufferFiles),
    /// Make files strict again; their deferred data becomes durable first.
    Strict(BufferFiles),
    Zeros(BufferZeros),
}

/// Relax files of a mounted ext4 over the buffer: overwrites of their data stay in memory across
/// syncs.
///
/// The buffer follows the files in the journal, also when they grow, until they are deleted or the
/// file system is unmounted or frozen. After a power cut each of their sectors is old or new. Their
/// sizes and all other files stay strict, and so does the first write of a new block. Use `syncline
/// preload --relaxed` to skip the syncs themselves. Needs root, Linux 5.15, and a journal without
/// fast_commit and journal_async_commit.
#[derive(Debug, Args)]
pub struct BufferFiles {
    /// The directory of the server.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Files, or directories for all files that they contain now.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// Count the pages of files that a log can store without a header.
///
/// A page of 4 KiB qualifies if it has at least as many zero words of four bytes as there are
/// nonzero words among its first nine. Other pages share a header with their batch. A second count
/// uses the condition of the informed-storage paper: two zero words.
#[derive(Debug, Args)]
pub struct BufferZeros {
    /// Files of any kind; a partial last page is padded with zeros, as on disk.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Serve the buffered device as the file DIR/device, over NBD, or through ublk, until it is
/// detached.
///
/// The log is recovered first. --attach prints the loop device. --as ublk prints the block device
/// /dev/ublkbN and needs root and Linux 6.5 with ublk_drv. --as nbd prints the URI for qemu, libnbd
/// and nbd-client, and needs neither root nor FUSE. As root, `modprobe nbd && nbd-client -unix
/// DIR/nbd /dev/nbd0` makes a block device of the URI. SIGTERM and an unmount of DIR drain the log,
/// as detach does. After SIGKILL the flushed data is in the log.
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
    /// Create the log: LOG is overwritten, or created as a file [default: LOG must exist].
    #[arg(long)]
    pub create: bool,
    /// Size of the file that --create creates: bytes, or with K, M, G.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size_bytes)]
    pub log_size: u64,
    /// With --create: overwrite LOG even if it is not empty.
    #[arg(long, requires = "create")]
    pub force: bool,
    /// Memory for staged writes: bytes, or with K, M, G.
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size_bytes)]
    pub ram: u64,
    /// Policies to enable: auto-ram, session, power; `syncline ctl set` changes them later. With
    /// the first file of `buffer relax` session and power begin by themselves.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',',
        value_parser = ["auto-ram", "session", "power"])]
    pub policy: Vec<String>,
    /// Program that says the state of power and session for the policies, as `mount -o sensor=`.
    #[arg(long, value_name = "PROGRAM", value_parser = |word: &str| std::path::absolute(word))]
    pub sensor: Option<PathBuf>,
    /// Kind of device to serve: a file in DIR (fuse), a network block device (nbd), or a block
    /// device of the kernel (ublk).
    #[arg(long = "as", value_name = "WAY", value_parser = ["fuse", "nbd", "ublk"],
        default_value = "fuse")]
    pub way: String,
    /// With --as nbd: unix:PATH, or 127.0.0.1:PORT, to which every user of this machine may connect
    /// [default: unix:DIR/nbd].
    #[arg(long, value_name = "PLACE")]
    pub listen: Option<String>,
    /// With --as fuse: attach a loop device (root) and print its name.
    #[arg(long, conflicts_with = "listen")]
    pub attach: bool,
    /// Stay in the foreground.
    #[arg(short, long)]
    pub foreground: bool,
    /// Internal: the process that keeps the rights of the one that serves.
    #[arg(long, hide = true)]
    pub keeper: bool,
}

#[derive(Debug, Args)]
pub struct BufferDir {
    /// The directory of the server.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Show the contents and counters of a buffer.
#[derive(Debug, Args)]
pub struct BufferStatus {
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// The directory of the server.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}
