//! The mount table, and the present mount of an image.
//!
//! ```text
//!   36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//!      id parent major:minor root MOUNT-POINT options [fields] - TYPE SOURCE super-options
//! ```
//! Source: proc(5), /proc/pid/mountinfo. Spaces and backslashes are octal escapes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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
    pub(crate) device: (u32, u32),
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
    Some(MountEntry { dir, kind, source: unescape(behind.next()?), device })
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

/// Reports whether the kernel still has the file system of an entry, mounted somewhere, or open
/// after a lazy unmount; false also where sysfs does not tell, and where another mount has its
/// number by now.
pub fn superblock_lives(entry: &MountEntry) -> bool {
    let (major, minor) = entry.device;
    let reused = |other: &MountEntry| other.device == entry.device && !is_same(other, entry);
    Path::new(&format!("/sys/class/bdi/{major}:{minor}")).exists() && !table().iter().any(reused)
}

/// The mount of an image: by the kernel, directly or through a loop device, or by a FUSE program
/// that names it as its source. `None` also where the mount table cannot be read.
pub fn mounted_image(image: &Path) -> Option<MountEntry> {
    let path = std::fs::canonicalize(image).ok()?;
    let meta = std::fs::metadata(&path).ok()?;
    let numbers = |dev| (rustix::fs::major(dev), rustix::fs::minor(dev));
    let block = meta.file_type().is_block_device().then(|| numbers(meta.rdev()));
    let same = |entry: &MountEntry| {
        entry.source == path
            || block.is_some_and(|device| device == entry.device)
            || entry.source.as_os_str().as_bytes().starts_with(b"/dev/loop")
                && backing_file(entry.device).is_some_and(|file| is_file(&file, &meta))
    };
    table().into_iter().find(same)
}

fn backing_file((major, minor): (u32, u32)) -> Option<PathBuf> {
    let path = format!("/sys/dev/block/{major}:{minor}/loop/backing_file");
    let text = std::fs::read(path).ok()?;
    let name = text.strip_suffix(b"\n").unwrap_or(&text);
    Some(PathBuf::from(OsString::from_vec(name.to_vec())))
}

fn is_file(path: &Path, meta: &std::fs::Metadata) -> bool {
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
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 7:3 / /mnt rw"), None);
        assert_eq!(unescape(b"a\\134\\0"), Path::new("a\\\\0"));
    }
}
