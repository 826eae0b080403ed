//! The command line of `cp`, `mkfs`, `resize`, `import`, `export` and `serve`, and the options that
//! all commands on images share.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::control::address;
use super::{offset_bytes, size_bytes};

/// Part of a whole-disk image.
#[derive(Debug, Clone, Args)]
pub struct Part {
    /// Use this partition (GPT or MBR), counted from 1 as in `fdisk -l`.
    #[arg(long, value_name = "N", conflicts_with = "offset",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub partition: Option<u32>,
    /// Use the file system that begins at this offset: bytes, or with K, M, G.
    #[arg(long, value_name = "BYTES", value_parser = offset_bytes)]
    pub offset: Option<u64>,
    /// Open a qcow2 that is over this file (--backing again for the file below it). This file is
    /// only read, and a name that is in an image is never opened.
    #[arg(long, value_name = "FILE")]
    pub backing: Vec<PathBuf>,
}

/// Reads of a damaged image.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Rescued {
    /// Read past damage: backups take the place of a bad superblock or descriptor, checksums and
    /// directory indexes are ignored, zeros stand for what cannot be read. All of it is told.
    #[arg(long)]
    pub rescue: bool,
    /// The same, and the directory /.rescue has deleted files and inodes without a name.
    #[arg(long)]
    pub undelete: bool,
}

/// Copy files into, out of and between images.
///
/// Holes stay holes. A file is written under a temporary name and renamed when it is complete. With
/// -r symbolic links, hard links and pipes are copied as such. Symbolic links are followed in the
/// given paths and nowhere below them, even if the files change during the copy. A target outside
/// of images that is itself a symbolic link is followed only if a slash follows it.
#[derive(Debug, Args)]
#[command(override_usage = "syncline cp [OPTIONS] <SOURCE>... <TARGET>")]
pub struct Cp {
    #[command(flatten)]
    pub part: Part,
    #[command(flatten)]
    pub rescued: Rescued,
    /// Copy directories and their contents.
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Keep mode, owner, times and extended attributes. Files of an image lose their set-user-ID
    /// and set-group-ID bits.
    #[arg(short, long)]
    pub preserve: bool,
    /// The same as -r -p --devices, and keep set-user-ID and set-group-ID bits. Use it for trusted
    /// images only: the author of a set-user-ID file can become root.
    #[arg(short, long)]
    pub archive: bool,
    /// Copy device files of an image as device files of this system.
    #[arg(long)]
    pub devices: bool,
    /// Files or directories to copy (paths of this system or IMAGE:/path), then the target: a
    /// directory or the new name.
    // One list: clap ends two lists where an option is between them.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<OsString>,
}

/// Make a new ext4 file system.
///
/// IMAGE is a block device or a file; a missing file is created. The options and the file system
/// are those of mke2fs 1.47, with the defaults that come with it; /etc/mke2fs.conf is not read, so
/// that all machines make the same. Features and options that are not made are refused with their
/// names. With SOURCE_DATE_EPOCH in the environment equal arguments give equal bytes; without it a
/// user who is not root owns the root directory, unless -E root_owner says who does.
#[derive(Debug, Args)]
pub struct Mkfs {
    /// Size of the image: bytes, or with K, M, G [default: that of the file or device].
    #[arg(long, value_name = "SIZE", value_parser = size_bytes)]
    pub size: Option<u64>,
    /// Permissions of a new image in octal, such as 644 [default: 600].
    #[arg(long, value_name = "MODE", value_parser = permissions)]
    pub mode: Option<u32>,
    /// Overwrite an existing image. What is mounted or open is never overwritten.
    #[arg(short = 'F', long)]
    pub force: bool,
    #[command(flatten)]
    pub format: Format,
    /// File or block device.
    pub image: PathBuf,
    /// As --size, with K, M, G or T.
    #[arg(value_name = "SIZE", value_parser = size_with_unit, conflicts_with = "size")]
    pub new_size: Option<u64>,
    /// More of these options, after --, which take precedence.
    #[arg(last = true, value_name = "ARGUMENT")]
    pub more: Vec<OsString>,
}

/// Options of a new file system, as mke2fs has them.
#[derive(Debug, Clone, Default, Args)]
pub struct Format {
    /// Name of the volume, at most 16 bytes.
    #[arg(short = 'L', long, value_name = "NAME")]
    pub label: Option<OsString>,
    /// Type: ext2, ext3 or ext4 [default: ext4].
    #[arg(short = 't', value_name = "TYPE", value_parser = ["ext2", "ext3", "ext4"])]
    pub fs_type: Option<String>,
    /// Use: floppy, small, big, huge, news, largefile, largefile4, or several separated by commas
    /// [default: by the size].
    #[arg(short = 'T', value_name = "USAGE")]
    pub usage: Option<String>,
    /// Features to add, or to remove with ^, separated by commas. Repeatable.
    #[arg(short = 'O', value_name = "FEATURES", allow_hyphen_values = true)]
    pub features: Vec<String>,
    /// Extended options: stride, stripe_width, lazy_itable_init, lazy_journal_init, resize,
    /// packed_meta_blocks, num_backup_sb, hash_seed, root_owner, discard, nodiscard,
    /// orphan_file_size, desc_size, assume_storage_prezeroed, encoding, encoding_flags. Repeatable.
    #[arg(short = 'E', value_name = "OPTIONS")]
    pub extended: Vec<String>,
    /// Journal: size=MiB, fast_commit_size=KiB, location=BLOCK.
    #[arg(short = 'J', value_name = "OPTIONS")]
    pub journal: Vec<String>,
    /// Block size in bytes, 1024 to 65536 [default: 4096, below 512 MiB 1024].
    #[arg(short = 'b', value_name = "BYTES")]
    pub block_size: Option<u32>,
    /// Make at least so many inodes.
    #[arg(short = 'N', value_name = "COUNT")]
    pub inodes: Option<u64>,
    /// Make an inode for so many bytes [default: 16384].
    #[arg(short = 'i', value_name = "BYTES")]
    pub bytes_per_inode: Option<u32>,
    /// Bytes of an inode [default: 256].
    #[arg(short = 'I', value_name = "BYTES")]
    pub inode_size: Option<u32>,
    /// Percentage of the blocks that only root may use [default: 5].
    #[arg(short = 'm', value_name = "PERCENT")]
    pub reserved: Option<f64>,
    /// Blocks of a group.
    #[arg(short = 'g', value_name = "BLOCKS")]
    pub blocks_per_group: Option<u32>,
    /// Groups whose tables stand together [default: 16].
    #[arg(short = 'G', value_name = "GROUPS")]
    pub flex_groups: Option<u32>,
    /// Identity: a UUID, clear, random or time [default: random].
    #[arg(short = 'U', value_name = "UUID")]
    pub uuid: Option<String>,
    /// Directory that the volume was mounted on last.
    #[arg(short = 'M', value_name = "DIRECTORY")]
    pub last_mounted: Option<OsString>,
    /// Action on errors: continue, remount-ro or panic [default: continue].
    #[arg(short = 'e', value_name = "ACTION", value_parser = ["continue", "remount-ro", "panic"])]
    pub errors: Option<String>,
    /// Print what would be made, and make nothing.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Print nothing [default].
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

/// [`Format`] alone, for what stands after `--`.
#[derive(Debug, clap::Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub struct MoreFormat {
    #[command(flatten)]
    pub format: Format,
    #[arg(short = 'F')]
    pub force: bool,
}

/// Make an image larger or smaller.
///
/// The image is checked first. An image file gets the size of its file system. Where it gets
/// smaller, files move, and inodes may get other numbers. A power cut loses no file; `syncline
/// repair` mends the rest.
#[derive(Debug, Args)]
pub struct Resize {
    /// The new size: bytes, or with K, M, G.
    #[arg(long, value_name = "SIZE", value_parser = size_bytes,
        required_unless_present_any = ["minimum", "new_size"], conflicts_with = "minimum")]
    pub size: Option<u64>,
    /// Shrink the image as far as its files allow.
    #[arg(long)]
    pub minimum: bool,
    /// File or block device.
    pub image: PathBuf,
    /// As --size, with K, M, G or T.
    #[arg(value_name = "SIZE", value_parser = size_with_unit)]
    #[arg(conflicts_with_all = ["size", "minimum"])]
    pub new_size: Option<u64>,
}

/// Fill an image from a directory, a tar archive or a container image.
///
/// Owners, permissions, times, extended attributes, hard links, devices and holes are kept. Root is
/// not needed, since this process writes the image. A missing image is created in one pass, as
/// large as the tree needs. With SOURCE_DATE_EPOCH in the environment equal trees give equal bytes:
/// times of a directory's files that are later are set to it.
///
/// Archives may be compressed with gzip, zstd, xz, bzip2 or lz4, and are verified to their end. `-`
/// is standard input. Names with `..` are refused; absolute names lose their slash. ACL entries
/// that have a user name but no number get the number of this system.
///
/// A container image is oci:DIR[:TAG], oci-archive:FILE[:TAG] or docker-archive:FILE[:NAME], as
/// skopeo names them. It fills a new image, without unpacking a layer on the way. The digests of
/// manifest, configuration and layers are checked.
#[derive(Debug, Args)]
#[command(override_usage = "syncline import [OPTIONS] <SOURCE>... <IMAGE>")]
pub struct Import {
    #[command(flatten)]
    pub new: NewImage,
    /// Take SOURCE for what `docker save` writes.
    #[arg(long, conflicts_with_all = ["layers", "multi_volume"])]
    pub docker: bool,
    /// Take each SOURCE for a layer of a container image, the lowest first.
    #[arg(long)]
    pub layers: bool,
    /// Take each SOURCE for a volume of one archive of `tar -M`, the first one first.
    #[arg(short = 'M', long, conflicts_with = "layers")]
    pub multi_volume: bool,
    /// Choose this platform of a container image, such as linux/arm64 [default: that of this
    /// machine].
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    pub platform: Option<String>,
    /// Leave out members of an archive that match, as GNU tar does. Repeatable.
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<OsString>,
    /// Change owners of an archive by the lines `OLD NEW` of this file, as GNU tar does.
    #[arg(long, value_name = "FILE")]
    pub owner_map: Option<PathBuf>,
    /// The same for groups.
    #[arg(long, value_name = "FILE")]
    pub group_map: Option<PathBuf>,
    /// Keep links to directories where the archive has a directory.
    #[arg(long)]
    pub keep_directory_symlink: bool,
    /// Owner and group of all files, such as 0:0.
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub owner: Option<(u32, u32)>,
    /// Leave out files of a directory that cannot be read, each with a remark.
    #[arg(long)]
    pub ignore_failed_read: bool,
    #[command(flatten)]
    pub part: Part,
    /// Directory, tar archive, container image, or `-` for standard input; then the image: a file
    /// or block device.
    // One list: clap ends two lists where an option is between them.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// Options of a new image with a tree in it.
#[derive(Debug, Args)]
pub struct NewImage {
    /// Size of a new image: bytes, or with K, M, G [default: as large as the tree needs].
    #[arg(long, value_name = "SIZE", value_parser = size_bytes,
        conflicts_with_all = ["minimum", "spare"])]
    pub size: Option<u64>,
    /// Make the smallest image that holds the tree; below 8 MiB without a journal, as mke2fs does.
    #[arg(long, conflicts_with = "spare")]
    pub minimum: bool,
    /// Leave so much room: 20% of the tree, or bytes, or with K, M, G [default: 16M].
    #[arg(long, value_name = "ROOM", value_parser = spare)]
    pub spare: Option<Spare>,
    /// Make at least so many inodes [default: one for 16 KiB, and as many as the tree needs].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    pub inodes: Option<u64>,
    /// Name of a new volume.
    #[arg(short = 'L', long, value_name = "NAME")]
    pub label: Option<String>,
    /// Permissions of a new image in octal, such as 644 [default: 600].
    #[arg(long, value_name = "MODE", value_parser = permissions)]
    pub mode: Option<u32>,
}

/// Room beside a tree.
#[derive(Debug, Clone, Copy)]
pub enum Spare {
    /// Percent of the tree.
    Percent(f64),
    /// Bytes.
    Bytes(u64),
}

impl NewImage {
    /// Returns whether an option is given that an image which exists cannot follow.
    pub fn is_given(&self) -> bool {
        let sized = self.size.is_some() || self.minimum || self.spare.is_some();
        sized || self.inodes.is_some() || self.label.is_some()
    }
}

/// Write a directory of an image as a tar archive.
///
/// Owners, permissions, times, extended attributes, ACLs, hard links, devices and holes are kept
/// (PAX, as GNU tar and bsdtar read them with --xattrs and --acls). Equal trees give equal bytes.
#[derive(Debug, Args)]
#[command(override_usage = "syncline export [OPTIONS] [-o FILE] <IMAGE[:/PATH]>")]
pub struct Export {
    /// File to write; `-` is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    #[command(flatten)]
    pub part: Part,
    #[command(flatten)]
    pub rescued: Rescued,
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

/// `20%` or `200M`.
fn spare(text: &str) -> Result<Spare, String> {
    let Some(percent) = text.strip_suffix('%') else { return size_bytes(text).map(Spare::Bytes) };
    let percent = percent.parse().ok().filter(|percent| (0.0..=10_000.0).contains(percent));
    percent.map(Spare::Percent).ok_or_else(|| "a part like 20%, or a size like 200M".to_owned())
}

/// `644`.
fn permissions(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "octal digits like 644".to_owned())
}

/// Serve the files of an image over NFS version 3, without FUSE and without root.
///
/// macOS, containers without /dev/fuse and virtual machines mount it with their own NFS clients;
/// libnfs also works. The command prints the mount command. Ctrl-C and SIGTERM unmount the image.
/// Synced files and all changes of names survive a power cut. Permissions are checked for the user
/// that a client names. A client can name any user, so other machines are refused unless --allow
/// lists them.
#[derive(Debug, Args)]
pub struct Serve {
    /// Address and port of MOUNT and NFS; a port alone is for this machine, and 0 picks a free one.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address)]
    pub nfs: SocketAddr,
    /// Other machines that may connect; repeatable.
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    pub allow: Vec<String>,
    /// Let all users of this machine connect and name any user [default: only root and the user who
    /// runs the server].
    #[arg(long)]
    pub allow_local_users: bool,
    /// Let every user read and change every file, whatever its permissions are.
    #[arg(long)]
    pub no_permissions: bool,
    /// Serve the page of `syncline top --web` as well, for browsers on this machine; port 0 picks a
    /// free one. /metrics has all numbers of the status for Prometheus.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address)]
    pub web: Option<SocketAddr>,
    /// Options of the volume, as for `mount`, such as ro, sync=ordered, log=packed.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    #[command(flatten)]
    pub part: Part,
    /// File or block device.
    pub image: PathBuf,
}

/// As [`size_bytes`]; e2fsprogs counts a number alone in blocks or KiB, so it must have a unit.
fn size_with_unit(text: &str) -> Result<u64, String> {
    if text.ends_with(|last: char| last.is_ascii_digit()) {
        return Err("a size with a unit, like 512M".to_owned());
    }
    size_bytes(text)
}
