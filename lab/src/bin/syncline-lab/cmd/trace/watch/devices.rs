//! The devices that are watched, from sysfs: disks, their partitions, and whether they have
//! requests.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use syncline_cli::error::{Failure, Result};

/// Bytes of a sector of the kernel's, whatever the device has.
pub(super) const SECTOR_BYTES: u64 = 512;

/// A disk, or a partition of one.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Name of the node, without its directory.
    pub(crate) name: String,
    /// Number of the disk, as the kernel has it: that of its requests.
    pub(super) disk: u32,
    /// Numbers of what has file systems: the disk and its partitions, or the partition.
    pub(super) volumes: Vec<u32>,
    /// First sector of a partition; 0 for a disk.
    pub(super) first: u64,
    /// Sectors of a partition; of a disk it does not matter.
    sectors: Option<u64>,
    /// True for a device without requests, as those of device mapper.
    pub(super) queued: bool,
    /// Size.
    pub(crate) size_bytes: u64,
}

/// Major and minor number as the kernel's one.
pub(super) fn number(major: u32, minor: u32) -> u32 {
    (major & 0xFFF) << 20 | minor & 0xF_FFFF
}

impl Watched {
    /// The device of this node.
    pub(super) fn of(node: &Path) -> Result<Watched> {
        let meta = fs::metadata(node).map_err(|err| Failure::host(node, &err))?;
        if !meta.file_type().is_block_device() {
            let text = format!("{}: not a block device; name one, as /dev/mmcblk0", node.display());
            return Err(Failure::Usage(text));
        }
        let device = meta.rdev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let dir = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let dir = fs::canonicalize(&dir).map_err(|err| Failure::host(&dir, &err))?;
        Watched::in_sysfs(&dir)
    }

    /// Every disk with hardware behind it.
    pub(super) fn all() -> Result<Vec<Watched>> {
        let root = Path::new("/sys/block");
        let failed = |err: std::io::Error| Failure::host(root, &err);
        let mut found = Vec::new();
        for entry in fs::read_dir(root).map_err(failed)? {
            let dir = fs::canonicalize(entry.map_err(failed)?.path()).map_err(failed)?;
            let there = value(&dir, "size").is_some_and(|sectors| sectors > 0);
            if there && dir.join("device").exists() {
                found.push(Watched::in_sysfs(&dir)?);
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        match found.is_empty() {
            true => {
                Err(Failure::Failed("no disk has hardware behind it; name a device".to_owned()))
            }
            false => Ok(found),
        }
    }

    fn in_sysfs(dir: &Path) -> Result<Watched> {
        let lacks = |what: &str| {
            Failure::Failed(format!("{}: no {what}; mount sysfs on /sys", dir.display()))
        };
        let own = device(dir).ok_or_else(|| lacks("dev"))?;
        let sectors = value(dir, "size").ok_or_else(|| lacks("size"))?;
        let first = value(dir, "start").filter(|_| dir.join("partition").exists());
        let disk_dir = if first.is_some() { dir.parent().unwrap_or(dir) } else { dir };
        let mut volumes = vec![own];
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.path().join("partition").exists() {
                volumes.extend(device(&entry.path()));
            }
        }
        Ok(Watched {
            name: dir.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            disk: device(disk_dir).ok_or_else(|| lacks("dev"))?,
            volumes,
            first: first.unwrap_or(0),
            sectors: first.map(|_| sectors),
            queued: !disk_dir.join("mq").exists(),
            size_bytes: sectors.saturating_mul(SECTOR_BYTES),
        })
    }

    /// Filter of the events of its requests.
    pub(super) fn requests(&self) -> String {
        let disk = format!("dev == {}", self.disk);
        match self.sectors {
            // A flush has no sector, so flushes of the other partitions are recorded as well.
            Some(sectors) => format!(
                "({disk} && (nr_sector == 0 || (sector >= {} && sector < {})))",
                self.first,
                self.first.saturating_add(sectors)
            ),
            None => format!("({disk})"),
        }
    }

    /// Filter of what is queued for it: where there are requests, of writes only.
    pub(super) fn queue(&self) -> String {
        let volumes = self.volumes();
        match self.queued {
            true => volumes,
            false => format!("({volumes} && rwbs ~ \"*W*\")"),
        }
    }

    /// Filter of the events of its file systems.
    pub(super) fn volumes(&self) -> String {
        let each: Vec<String> = self.volumes.iter().map(|dev| format!("dev == {dev}")).collect();
        format!("({})", each.join(" || "))
    }

    /// Filter of the kernel's write-back, which names the disk.
    pub(super) fn write_back(&self) -> String {
        format!("(name == \"{}:{}\")", self.disk >> 20, self.disk & 0xF_FFFF)
    }

    /// True if a request is to it.
    pub(super) fn has(&self, device: u32, offset_bytes: u64, len_bytes: u64) -> bool {
        let first = self.first.saturating_mul(SECTOR_BYTES);
        let end = self.sectors.map(|sectors| first.saturating_add(sectors * SECTOR_BYTES));
        device == self.disk
            && (len_bytes == 0
                || (offset_bytes >= first && end.is_none_or(|end| offset_bytes < end)))
    }
}

fn value(dir: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
}

fn device(dir: &Path) -> Option<u32> {
    let text = fs::read_to_string(dir.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(number(major.parse().ok()?, minor.parse().ok()?))
}
