//! `log=auto`: packed where a crash leaves the image to the next mount of Syncline, jbd2 where
//! another machine or program may be the next to read it.
//!
//! ```text
//!   image file                  on a disk that stays in this machine   -> packed
//!   partition or disk           as that, and fstab mounts it here      -> packed
//!   anything else, or unknown                                          -> jbd2
//! ```
//!
//! A disk stays if it is not `removable` and on no bus of exchangeable media, as lsblk's HOTPLUG
//! has it, and so do all disks below it. An eMMC stays, though it is on the bus of SD cards.
//!
//! Assumes that nobody but the mount opens an image file after a crash: this cannot be seen, so
//! `log=auto` is not the default. Tested here, and in `tests/it/mount.rs`.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use syncline_fs::{LogFormat, SyncMode};
use syncline_fuse::{FuseOptions, words};

/// Buses of media that are exchanged (util-linux, `sysfs_blkdev_is_hotpluggable`).
const BUSES: [&str; 5] = ["usb", "mmc", "pcmcia", "ieee1394", "firewire"];
/// Deepest stack of disks: a loop device on a volume of LVM on a RAID is 3.
const DEPTH_MAX: u32 = 8;

/// The format, and the reason in words. `grows`: the image is in a format of virtual machines.
pub(super) fn choose(
    options: &FuseOptions,
    (image, dir): (&Path, &Path),
    grows: bool,
) -> (LogFormat, String) {
    let fstab = fs::read_to_string("/etc/fstab").unwrap_or_default();
    let found = fs::metadata(image).map_err(|err| err.to_string());
    let reason = other_reader(options, grows)
        .map_or(Ok(()), Err)
        .and_then(|()| stays(Path::new("/sys"), &found?, || at_boot(&fstab, dir)));
    match reason {
        Ok(()) => (LogFormat::Packed, "its disk stays in this machine".to_owned()),
        Err(why) => (LogFormat::Jbd2, why),
    }
}

/// The reason why the options leave no choice, or let others read the image.
fn other_reader(options: &FuseOptions, grows: bool) -> Option<String> {
    let why = if options.volume.read_only {
        "the mount is read-only"
    } else if options.volume.sync == SyncMode::Ordered {
        "`sync=ordered` needs it"
    } else if options.buffer_log.is_some() {
        "`buffer_log` needs it"
    } else if options.partition.is_some() || options.offset.is_some() || grows {
        "a machine may start from the image"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// True if a line of fstab mounts it here at boot.
fn at_boot(fstab: &str, dir: &Path) -> bool {
    fstab.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, at, "fuse.syncline", options, ..]
            if Path::new(at) == dir && !words(options).any(|word| word == "noauto"))
    })
}

/// Fails with the reason why the image's disk may leave the machine, or is not known.
fn stays(sysfs: &Path, image: &Metadata, at_boot: impl Fn() -> bool) -> Result<(), String> {
    if !image.file_type().is_block_device() {
        return disk_stays(sysfs, image.dev(), DEPTH_MAX);
    }
    disk_stays(sysfs, image.rdev(), DEPTH_MAX)?;
    if at_boot() { Ok(()) } else { Err("no line of /etc/fstab mounts it here at boot".into()) }
}

/// As [`stays`], of a disk and those below it.
fn disk_stays(sysfs: &Path, number: u64, depth: u32) -> Result<(), String> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let part = fs::canonicalize(sysfs.join(format!("dev/block/{major}:{minor}")));
    let part = part.map_err(|_| "it is on no disk that is known".to_owned())?;
    let disk = match part.parent() {
        Some(disk) if part.join("partition").exists() => disk,
        _ => &part,
    };
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let name = disk.file_name().unwrap_or_default().to_string_lossy();
    if text(&disk.join("removable")) == "1" {
        return Err(format!("{name} is removable"));
    }
    for above in disk.ancestors() {
        let bus = fs::read_link(above.join("subsystem")).unwrap_or_default();
        let bus = bus.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let soldered = bus == "mmc" && text(&above.join("type")) == "MMC";
        if BUSES.contains(&&*bus) && !soldered {
            return Err(format!("{name} is on the bus {bus}, whose media are exchanged"));
        }
    }
    let below = fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten();
    let mut below: Vec<u64> =
        below.filter_map(|entry| device_number(&text(&entry.path().join("dev")))).collect();
    let file = text(&disk.join("loop/backing_file"));
    below.extend(fs::metadata(&file).ok().filter(|_| !file.is_empty()).map(|meta| meta.dev()));
    if below.is_empty() && !disk.join("device").exists() || depth == 0 {
        return Err(format!("the disk below {name} is not known"));
    }
    below.into_iter().try_for_each(|number| disk_stays(sysfs, number, depth - 1))
}

/// The number in the text `8:1`.
fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory in the form of sysfs: disks with their bus and what is in their files.
    fn sysfs(dir: &Path) {
        for (number, device, disk, bus, removable) in [
            ("8:0", "pci0/ata1", "sda", "scsi", "0"),
            ("8:16", "pci0/usb1/1-1", "sdb", "usb", "0"),
            ("11:0", "pci0/ata2", "sr0", "scsi", "1"),
            ("179:0", "mmc0", "mmcblk0", "mmc", "0"),
            ("179:8", "mmc1", "mmcblk1", "mmc", "0"),
            ("253:0", "virtual", "dm-0", "", "0"),
            ("253:1", "virtual", "dm-1", "", "0"),
            ("43:0", "virtual", "nbd0", "", "0"),
        ] {
            let device = dir.join("devices").join(device);
            let block = device.join("block").join(disk);
            fs::create_dir_all(block.join("slaves")).unwrap();
            fs::create_dir_all(dir.join("dev/block")).unwrap();
            if !bus.is_empty() {
                symlink(dir.join("bus").join(bus), device.join("subsystem")).unwrap();
                symlink(&device, block.join("device")).unwrap();
            }
            fs::write(block.join("removable"), removable).unwrap();
            fs::write(block.join("dev"), number).unwrap();
            symlink(&block, dir.join("dev/block").join(number)).unwrap();
        }
        fs::write(dir.join("devices/mmc0/type"), "MMC\n").unwrap();
        fs::write(dir.join("devices/mmc1/type"), "SD\n").unwrap();
        let sda = dir.join("devices/pci0/ata1/block/sda");
        fs::create_dir(sda.join("sda1")).unwrap();
        fs::write(sda.join("sda1/partition"), "1\n").unwrap();
        symlink(sda.join("sda1"), dir.join("dev/block/8:1")).unwrap();
        let below = |upper: &str, number: &str| {
            let slaves = dir.join("devices/virtual/block").join(upper).join("slaves");
            symlink(dir.join("dev/block").join(number), slaves.join(number)).unwrap();
        };
        below("dm-0", "8:0");
        below("dm-1", "8:0");
        below("dm-1", "8:16");
    }

    #[test]
    fn a_disk_stays_unless_it_or_one_below_it_may_leave() {
        let dir = tempfile::tempdir().unwrap();
        sysfs(dir.path());
        for (number, said) in [
            ("8:0", ""),
            ("8:1", ""),
            ("8:16", "sdb is on the bus usb"),
            ("11:0", "sr0 is removable"),
            ("179:0", ""),
            ("179:8", "mmcblk1 is on the bus mmc"),
            ("253:0", ""),
            ("253:1", "sdb is on the bus usb"),
            ("43:0", "the disk below nbd0 is not known"),
            ("0:40", "no disk that is known"),
        ] {
            let found = disk_stays(dir.path(), device_number(number).unwrap(), DEPTH_MAX);
            let found = found.err().unwrap_or_default();
            assert!(
                found.contains(said) && found.is_empty() == said.is_empty(),
                "{number} {found}"
            );
        }
    }

    #[test]
    fn a_loop_device_is_as_the_disk_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let (file, blocks) = (dir.path().join("file"), dir.path().join("dev/block"));
        fs::write(&file, "").unwrap();
        // No number that the disk of this file may have.
        let upper = blocks.join("4000:1");
        fs::create_dir_all(upper.join("loop")).unwrap();
        fs::write(upper.join("loop/backing_file"), format!("{}\n", file.display())).unwrap();
        let found = || disk_stays(dir.path(), rustix::fs::makedev(4000, 1), DEPTH_MAX);
        assert!(found().unwrap_err().contains("no disk that is known"));
        let own = fs::metadata(&file).unwrap().dev();
        let number = format!("{}:{}", rustix::fs::major(own), rustix::fs::minor(own));
        fs::create_dir_all(blocks.join(number).join("device")).unwrap();
        assert_eq!(found(), Ok(()));
    }

    #[test]
    fn a_partition_is_ours_if_fstab_mounts_it_at_boot() {
        let at = |line: &str| at_boot(line, Path::new("/srv"));
        assert!(at("# comment\nUUID=1 /srv fuse.syncline noatime,log=auto 0 0\n"));
        assert!(!at("UUID=1 /srv fuse.syncline noatime,noauto 0 0"));
        assert!(!at("UUID=1 /srv ext4 noatime 0 0") && !at("/i /other fuse.syncline rw 0 0"));
    }

    #[test]
    fn options_may_leave_no_choice() {
        let said = |list: &str, grows| {
            let why = other_reader(&FuseOptions::parse(&[list]).unwrap(), grows);
            why.unwrap_or_default()
        };
        assert_eq!(said("log=auto", false) + &said("log=auto,sync=periodic", false), "");
        assert!(said("log=auto,sync=ordered", false).contains("sync=ordered"));
        assert!(said("log=auto,ro", false).contains("read-only"));
        assert!(said("log=auto,buffer_log=a", false).contains("buffer_log"));
        for (list, grows) in [("log=auto,partition=1", false), ("log=auto", true)] {
            assert!(said(list, grows).contains("start from"), "{list}");
        }
    }
}
