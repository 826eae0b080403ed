//! Lifetimes of writes ([`WriteLife`]), passed on to a block device that places by them.
//!
//! ```text
//!   write, life ---> stream of the entry in the ring     NVMe with data placement, Linux 6.16
//!              \---> open file whose node has the hint   UFS, Linux 6.9
//! ```
//!
//! - A device with `queue/max_write_streams` has streams. A write that goes through the ring names
//!   its stream; a lifetime beyond the last stream has none. Any user who may open the device can.
//! - Disks of a UFS host take `F_SET_RW_HINT`, which Linux keeps in the inode of the node through
//!   which a direct write comes. All programs share the node in /dev, so each lifetime has a node
//!   of its own, on a tmpfs that is mounted nowhere and ends with the open files. This needs root.
//!   Linux sends the hint as the group number of the command where the device has such groups; it
//!   tells nobody whether it does.
//! - A write of another kind (page cache, system call beside a busy ring) has no stream. It is a
//!   hint: no byte depends on it.
//!
//! Assumption: SCSI disks of other hosts are not asked. Some card readers hang at a question for
//! the page of these groups, and Linux does not put it to them either. Tested below on a loop
//! device, and by `lab/scripts/guest.py lives` on `scsi_debug`, which counts groups, and on the
//! emulated NVMe of qemu.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dev, FileType, Mode, OFlags, major, minor, mknodat, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::sys;
use crate::WriteLife;

/// All lifetimes that are known, in the order of their hints. `RWH_WRITE_LIFE_SHORT` is 2, since
/// Linux has 1 for no hint at all.
const KNOWN: [WriteLife; 4] =
    [WriteLife::Short, WriteLife::Medium, WriteLife::Long, WriteLife::Extreme];
/// Names of hosts whose disks take hints: that of UFS, and the kernel's own model.
const HOSTS: [&str; 2] = ["ufshcd", "scsi_debug"];

/// Ways of a device for lifetimes.
pub(super) enum Lives {
    /// It has no use for them.
    None,
    /// So many streams, from 1 on.
    Streams(u8),
    /// Open files for direct writes, by [`KNOWN`].
    Hints([File; 4]),
}

impl Lives {
    /// The way of the block device that is open in `device`; `has_ring` of this process.
    pub(super) fn of(device: &File, has_ring: bool) -> Lives {
        let Some(number) = device.metadata().ok().map(|known| known.rdev()) else {
            return Lives::None;
        };
        let place = PathBuf::from(format!("/sys/dev/block/{}:{}", major(number), minor(number)));
        let Ok(place) = place.canonicalize() else { return Lives::None };
        match streams_at(&place) {
            0 if takes_hints(&place) => Lives::hints(device, number),
            streams if streams > 0 && has_ring => Lives::Streams(streams),
            _ => Lives::None,
        }
    }

    /// A node and an open file for each lifetime.
    pub(super) fn hints(device: &File, number: Dev) -> Lives {
        let Some(files) = open_each(number) else { return Lives::None };
        for (life, file) in KNOWN.iter().zip(&files) {
            if sys::set_write_hint(file, *life as u64 + 1).is_err() {
                return Lives::None;
            }
        }
        // Linux has set the hint of what goes through the page cache as well.
        let _ = sys::set_write_hint(device, 0);
        Lives::Hints(files)
    }

    /// True if the device has a use for lifetimes.
    pub(super) fn are_used(&self) -> bool {
        !matches!(self, Lives::None)
    }

    /// The stream of a write through the ring; 0 is none.
    pub(super) fn stream(&self, life: WriteLife) -> u8 {
        match self {
            Lives::Streams(streams) if life as u8 <= *streams => life as u8,
            _ => 0,
        }
    }

    /// The file for direct writes of this lifetime.
    pub(super) fn file(&self, life: WriteLife) -> Option<&File> {
        let Lives::Hints(files) = self else { return None };
        files.get((life as usize).checked_sub(1)?)
    }
}

/// Streams of the device at this place of sysfs, or of the disk of the partition there.
fn streams_at(place: &Path) -> u8 {
    let of = |place: &Path| std::fs::read_to_string(place.join("queue/max_write_streams")).ok();
    let text = of(place).or_else(|| of(place.parent()?));
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// True for a disk of one of [`HOSTS`].
fn takes_hints(place: &Path) -> bool {
    let is_host =
        |name: &&str| name.strip_prefix("host").is_some_and(|nr| nr.parse::<u32>().is_ok());
    let host = place.components().filter_map(|part| part.as_os_str().to_str()).find(is_host);
    let file = host.map(|host| Path::new("/sys/class/scsi_host").join(host).join("proc_name"));
    let name = file.and_then(|file| std::fs::read_to_string(file).ok());
    name.is_some_and(|name| HOSTS.contains(&name.trim()))
}

fn open_each(number: Dev) -> Option<[File; 4]> {
    let tmpfs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_create(&tmpfs).ok()?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let place = fsmount(&tmpfs, flags, MountAttrFlags::empty()).ok()?;
    let open = |life: &WriteLife| {
        let (name, mode) = (format!("{life:?}"), Mode::RUSR | Mode::WUSR);
        mknodat(&place, &name, FileType::BlockDevice, mode, number).ok()?;
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat(&place, &name, flags, Mode::empty()).ok().map(File::from)
    };
    let files: Option<Vec<File>> = KNOWN.iter().map(open).collect();
    files?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(dir: &Path, name: &str, content: &str) {
        let file = dir.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }

    #[test]
    fn streams_are_those_of_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        made(dir.path(), "nvme0n1/queue/max_write_streams", "3\n");
        made(dir.path(), "nvme0n1/nvme0n1p1/partition", "1\n");
        made(dir.path(), "sda/queue/max_write_streams", "0\n");
        made(dir.path(), "sdb/queue/rotational", "0\n");
        let streams = |name: &str| streams_at(&dir.path().join(name));
        assert_eq!([streams("nvme0n1"), streams("nvme0n1/nvme0n1p1")], [3, 3]);
        assert_eq!([streams("sda"), streams("sdb")], [0, 0]);
        let lives = Lives::Streams(3);
        let by_life = [WriteLife::NotSet].iter().chain(&KNOWN).map(|life| lives.stream(*life));
        assert_eq!(by_life.collect::<Vec<_>>(), [0, 1, 2, 3, 0], "none beyond the last");
    }
}
