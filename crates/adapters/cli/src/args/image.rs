//! The command line of `cp`, `mkfs`, `import`, `export`, `serve`, and of what all commands on
//! images share.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::{offset_bytes, size_bytes};

/// Part of a whole-disk image.
#[derive(Debug, Clone, Args)]
pub struct Part {
    /// The ext4 is in this partition (GPT or MBR), counted from 1 as `fdisk -l` does.
    #[arg(long, value_name = "N", conflicts_with = "offset",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub partition: Option<u32>,
    /// The ext4 begins at this byte: bytes, or with K, M, G.
    #[arg(long, value_name = "BYTES", value_parser = offset_bytes)]
    pub offset: Option<u64>,
}

/// Copy files into, out of and between images.
///
/// Holes stay holes. A file is written under a temporary name and renamed when it is complete. With
/// -r symbolic links, hard links and pipes are copied as such. Links are followed in the paths that
/// are named here and nowhere below them, also if they change while they are copied; at the end of
/// a target outside of images only with a slash behind it.
#[derive(Debug, Args)]
#[command(override_usage = "syncline cp [OPTIONS] <SOURCE>... <TARGET>")]
pub struct Cp {
    #[command(flatten)]
    pub part: Part,
    /// Directories with what is in them.
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Keep mode, owner, times and extended attributes; of an image without set-user-ID and
    /// set-group-ID bits.
    #[arg(short, long)]
    pub preserve: bool,
    /// The same as -r -p --devices, and keep set-user-ID and set-group-ID bits. Only for trusted
    /// images: a set-user-ID file lets its author become root.
    #[arg(short, long)]
    pub archive: bool,
    /// Make device files of an image device files of this system.
    #[arg(long)]
    pub devices: bool,
    /// Files or directories to copy (paths of this system or IMAGE:/path), then a directory or the
    /// new name.
    // One list: clap ends two lists where an option is between them.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<OsString>,
}

/// Make a new ext4, by mke2fs.
///
/// The image is a file, which is made, or a block device. With SOURCE_DATE_EPOCH in the environment
/// equal arguments give equal bytes.
#[derive(Debug, Args)]
pub struct Mkfs {
    /// Size of the image: bytes, or with K, M, G [default: that of the file or device].
    #[arg(long, value_name = "SIZE", value_parser = size_bytes)]
    pub size: Option<u64>,
    /// Name of the volume.
    #[arg(short = 'L', long, value_name = "NAME")]
    pub label: Option<String>,
    /// Permissions of a new image, octal, as 644 [default: 600].
    #[arg(long, value_name = "MODE", value_parser = permissions)]
    pub mode: Option<u32>,
    /// Overwrite what is there.
    #[arg(long)]
    pub force: bool,
    /// File or block device.
    pub image: PathBuf,
    /// More arguments for mke2fs, behind --.
    #[arg(last = true, value_name = "ARGUMENT")]
    pub more: Vec<OsString>,
}

/// Make an image larger or smaller, by resize2fs.
///
/// The image is checked before. A file gets the size of its volume.
#[derive(Debug, Args)]
pub struct Resize {
    /// The new size: bytes, or with K, M, G.
    #[arg(long, value_name = "SIZE", value_parser = size_bytes,
        required_unless_present = "minimum", conflicts_with = "minimum")]
    pub size: Option<u64>,
    /// As small as its files allow.
    #[arg(long)]
    pub minimum: bool,
    /// File or block device.
    pub image: PathBuf,
}

/// Fill an image from a directory or a tar archive.
///
/// Owners, permissions, times, extended attributes, hard links, devices and holes are kept, also
/// without root: the image is written in this process. An image that is not there is made, by
/// mke2fs, as large as the tree needs. With SOURCE_DATE_EPOCH in the environment equal trees give
/// equal bytes: no time is later than that.
///
/// Archives may be compressed by gzip or zstd, and are verified to their end; `-` is standard
/// input, which needs an image that is there or --size. Names with `..` are refused, absolute ones
/// lose their slash. ACLs that name users without numbers take those of this system.
#[derive(Debug, Args)]
pub struct Import {
    /// Size of a new image: bytes, or with K, M, G [default: what the tree needs].
    #[arg(long, value_name = "SIZE", value_parser = size_bytes)]
    pub size: Option<u64>,
    /// Name of a new volume.
    #[arg(short = 'L', long, value_name = "NAME")]
    pub label: Option<String>,
    /// Permissions of a new image, octal, as 644 [default: 600].
    #[arg(long, value_name = "MODE", value_parser = permissions)]
    pub mode: Option<u32>,
    /// Owner and group of everything: 0:0.
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub owner: Option<(u32, u32)>,
    #[command(flatten)]
    pub part: Part,
    /// Directory, tar archive, or `-`.
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// File or block device.
    pub image: PathBuf,
}

/// Write a directory of an image as a tar archive.
///
/// Owners, permissions, times, extended attributes, ACLs, hard links, devices and holes are kept
/// (PAX, as GNU tar and bsdtar read them with --xattrs and --acls). Equal trees give equal bytes.
#[derive(Debug, Args)]
pub struct Export {
    /// File to write; `-` is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    #[command(flatten)]
    pub part: Part,
    /// IMAGE, or IMAGE:/path.
    #[arg(value_name = "IMAGE[:/PATH]")]
    pub source: OsString,
}

/// `0:0`.
fn owner(text: &str) -> Result<(u32, u32), String> {
    let numbers = text
        .split_once(':')
        .and_then(|(uid, gid)| Some((uid.parse::<u32>().ok()?, gid.parse::<u32>().ok()?)));
    numbers.ok_or_else(|| "two numbers like 0:0".to_owned())
}

/// `644`.
fn permissions(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "octal digits like 644".to_owned())
}

/// Serve the files of an image over NFS version 3, without FUSE and without root.
///
/// For macOS, containers without /dev/fuse and virtual machines: their own NFS clients mount it,
/// and libnfs reads and writes it. Prints the mount command. Ctrl-C or SIGTERM unmounts the image.
/// A file that a client has synced, and every change of names, is there after a power cut.
/// Permissions are those of the user that a client names. Whoever may connect may name any user, so
/// other machines have to be allowed.
#[derive(Debug, Args)]
pub struct Serve {
    /// Address and port to listen on, for MOUNT and NFS; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub nfs: SocketAddr,
    /// Other machines that may connect; may be repeated.
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    pub allow: Vec<String>,
    /// Other users of this machine may connect too, and name any user; without it the user who
    /// serves and root may.
    #[arg(long)]
    pub allow_local_users: bool,
    /// Every user may read and change every file, whatever its permissions are.
    #[arg(long)]
    pub no_permissions: bool,
    /// Options of the volume, as for `mount`: ro, sync=ordered, log=packed.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    #[command(flatten)]
    pub part: Part,
    /// File or block device.
    pub image: PathBuf,
}
