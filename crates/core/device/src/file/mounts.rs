//! The mount table, the present mount of an image, and other users of a file in the kernel.
//!
//! Promises: an image that the kernel has mounted is found by device and inode, under any of its
//! names: on a block device, through a loop device or a partition of one, also where another mount
//! namespace has the mount. Assumes that sysfs is mounted; without it, and for what only root may
//! ask of a loop device, the mount table alone tells. Tested in `tests.rs`, on loop devices.
//!
//! ```text
//!   36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//!      id parent major:minor root MOUNT-POINT options [fields] - TYPE SOURCE super-options
//! ```
//! Source: proc(5), /proc/pid/mountinfo. Spaces and backslashes are octal escapes.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Mount point.
    pub dir: PathBuf,
    /// `ext4`, `fuse.syncline`, ...
    pub kind: String,
    /// Source: a device, or the name that the FUSE program gives.
    pub source: PathBuf,
    /// Major and minor number of the file system.
    pub device: (u32, u32),
    /// User who mounted it, of a FUSE file system (`user_id=`).
    pub user: Option<u32>,
}

impl MountEntry {
    /// True if what the entry says of its source can be believed: a FUSE program tells the kernel
    /// any name. Root's and the caller's own do.
    pub fn is_trusted(&self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        self.user.is_none_or(|user| user == 0 || user == own)
    }
}

fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..3).filter(|d| d.iter().all(|c| (b'0'..=b'7').contains(c)));
        match digits {
            Some(digits) if *first == b'\\' => {
                let value = digits.iter().fold(0u32, |sum, c| sum * 8 + u32::from(c - b'0'));
                out.push(value as u8);
                rest = &behind[3..];
            }
            _ => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let device = (device.0.parse().ok()?, device.1.parse().ok()?);
    let dir = unescape(fields.nth(1)?);
    let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(behind.next()?).into_owned();
    let source = unescape(behind.next()?);
    let words = behind.next().unwrap_or_default().split(|byte| *byte == b',');
    let mut ids = words.filter_map(|word| word.strip_prefix(b"user_id="));
    let user = ids.next().and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
    Some(MountEntry { dir, kind, source, device, user })
}

fn table() -> Vec<MountEntry> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

/// The mount on `dir`, an absolute path; the uppermost of several.
pub fn mount_of(dir: &Path) -> Option<MountEntry> {
    table().into_iter().rfind(|entry| entry.dir == dir)
}

/// Other mounts of the same file system, as far as this mount namespace shows.
pub fn mounts_beside(entry: &MountEntry) -> Vec<PathBuf> {
    table().into_iter().filter(|other| is_same(other, entry)).map(|other| other.dir).collect()
}

/// True if both are mounts of one file system. The number alone does not tell: the kernel gives it
/// to the next mount as soon as it is free.
fn is_same(a: &MountEntry, b: &MountEntry) -> bool {
    a.device == b.device && a.kind == b.kind && a.source == b.source
}

/// The kernel's superblock of a mount, as sysfs shows it. The device number does not identify it,
/// because the next mount may get the same. The inode number of its directory in sysfs does.
#[derive(Debug)]
pub struct Superblock {
    dir: PathBuf,
    inode: u64,
}

impl Superblock {
    /// That of a mount. `None` where sysfs does not tell.
    pub fn of(entry: &MountEntry) -> Option<Self> {
        let (major, minor) = entry.device;
        let dir = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}"));
        let inode = std::fs::metadata(&dir).ok()?.ino();
        Some(Self { dir, inode })
    }

    /// Reports whether the kernel still has it, mounted somewhere, or open after a lazy unmount.
    pub fn lives(&self) -> bool {
        std::fs::metadata(&self.dir).is_ok_and(|found| found.ino() == self.inode)
    }
}

/// The mount of an image: by the kernel, directly or through a loop device, or by a FUSE program
/// of root or the caller that names it as its source. `None` also where the mount table cannot be
/// read.
pub fn mounted_image(image: &Path) -> Option<MountEntry> {
    let path = std::fs::canonicalize(image).ok()?;
    let meta = std::fs::metadata(&path).ok()?;
    let numbers = |dev| (rustix::fs::major(dev), rustix::fs::minor(dev));
    let mut devices = Vec::new();
    if meta.file_type().is_block_device() {
        devices.push(numbers(meta.rdev()));
    } else if let Some(name) = loop_over(&meta, None) {
        devices = devices_of(&name);
    }
    let same = |entry: &MountEntry| {
        entry.source == path && entry.is_trusted() || devices.contains(&entry.device)
    };
    table().into_iter().find(same)
}

/// Why an image must not be written to: the kernel has it mounted, or a loop device is over it,
/// through which it may be mounted elsewhere. Mounts of this project are left out: they hold a lock
/// on their image.
pub fn kernel_use(path: &Path) -> Option<String> {
    if let Some(entry) = mounted_image(path).filter(|entry| entry.kind != OWN_KIND) {
        let (dir, kind) = (entry.dir.display(), entry.kind);
        return Some(format!("already mounted on {dir} ({kind}); unmount that first"));
    }
    let meta = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    if is_swap(&meta) {
        return Some("the kernel swaps to it; end that with `swapoff` first".to_owned());
    }
    Some(below_loop(&loop_over(&meta, None)?))
}

fn below_loop(name: &str) -> String {
    format!(
        "the loop device /dev/{name} is over it and may be mounted in another mount namespace; \
         unmount it and detach it with `losetup -d /dev/{name}`"
    )
}

/// As [`kernel_use`], of a file that another process has opened to write, which may have no path
/// here. The kernel lets nobody write to a file to which it swaps.
pub(super) fn kernel_use_of(file: &File) -> Option<String> {
    let meta = file.metadata().ok().filter(Metadata::is_file)?;
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    let name = loop_over(&meta, std::fs::read_link(link).ok().as_deref())?;
    Some(below_loop(&name))
}

/// Type of this project's mounts in the mount table.
pub(super) const OWN_KIND: &str = "fuse.syncline";

/// True for a file that the kernel swaps to: proc(5), /proc/swaps.
fn is_swap(meta: &Metadata) -> bool {
    let text = std::fs::read("/proc/swaps").unwrap_or_default();
    let names = text
        .split(|byte| *byte == b'\n')
        .skip(1)
        .filter_map(|line| line.split(|b| *b == b' ').next());
    names.filter(|name| !name.is_empty()).any(|name| is_file(&unescape(name), meta))
}

/// The loop device over a file. With `path` this is the file's name as the kernel tells it.
fn loop_over(meta: &Metadata, path: Option<&Path>) -> Option<String> {
    let entries = std::fs::read_dir("/sys/block").ok()?;
    entries.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok().filter(|name| name.starts_with("loop"))?;
        let text = std::fs::read(entry.path().join("loop/backing_file")).ok()?;
        let file = OsString::from_vec(text.strip_suffix(b"\n").unwrap_or(&text).to_vec());
        // The name is of another mount namespace, or the file has lost it: the device knows.
        let is_over = path == Some(Path::new(&file)) || is_file(Path::new(&file), meta) || {
            let device = File::open(Path::new("/dev").join(&name));
            device.is_ok_and(|device| {
                super::sys::loop_file(&device).is_ok_and(|id| id == (meta.dev(), meta.ino()))
            })
        };
        is_over.then_some(name)
    })
}

/// Numbers of a block device and its partitions.
fn devices_of(name: &str) -> Vec<(u32, u32)> {
    let dir = Path::new("/sys/block").join(name);
    let parts = std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let parts = parts.filter(|path| path.join("partition").exists());
    let numbers = |dir: PathBuf| {
        let text = std::fs::read_to_string(dir.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    std::iter::once(dir.clone()).chain(parts).filter_map(numbers).collect()
}

fn is_file(path: &Path, meta: &Metadata) -> bool {
    std::fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_away_is_another_mount() {
        let line = |source: &str| format!("36 35 0:51 / /mnt rw - fuse.syncline {source} rw");
        let entry = |source| parse(line(source).as_bytes()).unwrap();
        assert!(is_same(&entry("/a.img"), &entry("/a.img")));
        assert!(!is_same(&entry("/a.img"), &entry("/b.img")));
    }

    #[test]
    fn lines_of_the_table() {
        let line = b"36 35 7:3 / /mnt/a\\040b rw,noatime master:1 shared:2 - ext4 /dev/loop3 rw";
        let entry = parse(line).unwrap();
        assert_eq!(entry.dir, Path::new("/mnt/a b"));
        assert_eq!((entry.kind.as_str(), entry.device), ("ext4", (7, 3)));
        assert_eq!(entry.source, Path::new("/dev/loop3"));
        assert_eq!((entry.user, entry.is_trusted()), (None, true));
        let fuse = |user: u32| {
            let line = format!("36 35 0:51 / /mnt rw - fuse.x /a.img rw,user_id={user},group_id=1");
            parse(line.as_bytes()).unwrap()
        };
        let own = rustix::process::geteuid().as_raw();
        assert!(fuse(0).is_trusted() && fuse(own).is_trusted() && !fuse(own + 1).is_trusted());
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 7:3 / /mnt rw"), None);
        assert_eq!(unescape(b"a\\134\\0"), Path::new("a\\\\0"));
    }
}
