//! Formats of files that are no ext4, named in errors.

use syncline_device::{BlockDevice, Kind, Origin};

/// Where the mark is, the mark, what has it, and the next step.
const KNOWN: &[(u64, &[u8], &str, &str)] = &[
    (0, b"LUKS\xBA\xBE", "LUKS", "open it with `cryptsetup open`"),
    (3, b"-FVE-FS-", "BitLocker", "open it with `cryptsetup open --type bitlk`"),
    (0, b"hsqs", "squashfs", "unpack it with unsquashfs and import the directory"),
    (0, b"XFSB", "XFS", "mount it with the kernel"),
    (65536 + 64, b"_BHRfS_M", "btrfs", "mount it with the kernel"),
    (4096 + 24, b"\xC6\x85\x73\xF6", "bcachefs", "mount it with the kernel"),
    (1024, b"\x10\x20\xF5\xF2", "F2FS", "mount it with the kernel"),
    (1024, b"\xE2\xE1\xF5\xE0", "EROFS", "unpack it with fsck.erofs --extract and import it"),
    (0, b"\x45\x3D\xCD\x28", "cramfs", "mount it with the kernel"),
    (512, b"LABELONE", "an LVM physical volume", "activate its volumes with `vgchange -ay`"),
    (4096, b"\xFC\x4E\x2B\xA9", "a member of an md array", "assemble it with mdadm"),
    (0, b"\xFC\x4E\x2B\xA9", "a member of an md array", "assemble it with mdadm"),
    (4086, b"SWAPSPACE2", "swap space", "check that it is the right partition"),
    (3, b"NTFS    ", "NTFS", "mount it with the kernel"),
    (3, b"EXFAT   ", "exFAT", "mount it with the kernel"),
    (82, b"FAT32   ", "FAT", "use mtools, or mount it with the kernel"),
    (54, b"FAT1", "FAT", "use mtools, or mount it with the kernel"),
    (32769, b"CD001", "an ISO 9660 image", "unpack it with bsdtar and import the directory"),
    (32, b"NXSB", "APFS", "copy it to an ext4 on a Mac"),
    (1024, b"H+", "HFS+", "mount it with the kernel"),
    (1024, b"HX", "HFS+", "mount it with the kernel"),
    (0, b"UBI#", "UBI", "write it to flash with ubiformat"),
    (64, b"\x7F\x10\xDA\xBE", "a VDI of VirtualBox", "`qemu-img convert -O qcow2` makes a qcow2"),
    (0, b"QED\0", "a QED", "`qemu-img convert -O qcow2` makes a qcow2"),
    (0, b"WithoutFreeSpace", "a disk of Parallels", "`qemu-img convert -O qcow2` makes a qcow2"),
    (0, b"WithouFreSpacExt", "a disk of Parallels", "`qemu-img convert -O qcow2` makes a qcow2"),
    (0, b"ANDROID!", "a boot image of Android", "unpack it with unpack_bootimg"),
    (257, b"ustar", "a tar archive", "`syncline import` makes an image of it"),
    (0, b"070701", "a cpio archive", "unpack it with cpio and import the directory"),
    (0, b"PK\x03\x04", "a zip archive", "unpack it first"),
    (0, b"7z\xBC\xAF\x27\x1C", "a 7z archive", "unpack it first"),
    (0, b"\x1F\x8B\x08", "compressed by gzip", "unpack it first, as `gzip -dk FILE`"),
    (0, b"\x28\xB5\x2F\xFD", "compressed by zstd", "unpack it first, as `zstd -d FILE`"),
    (0, b"\xFD7zXZ\0", "compressed by xz", "unpack it first, as `xz -dk FILE`"),
    (0, b"BZh", "compressed by bzip2", "unpack it first, as `bzip2 -dk FILE`"),
    (0, b"\x04\x22\x4D\x18", "compressed by lz4", "unpack it first, as `lz4 -d FILE`"),
];

/// A sentence on what this is; none if no mark is known.
pub fn named(dev: &dyn BlockDevice) -> Option<String> {
    let is = |at: u64, mark: &[u8]| {
        let mut bytes = [0; 1024];
        let start = at / 512 * 512;
        let origin = Origin::new(Kind::Metadata, true);
        let inside = (at - start) as usize;
        let len = if inside + mark.len() > 512 { 1024 } else { 512 };
        let part = &mut bytes[..len];
        dev.read(start, part, origin).is_ok() && part[inside..].starts_with(mark)
    };
    let found = KNOWN.iter().find(|(at, mark, ..)| is(*at, mark));
    found.map(|(_, _, name, next)| format!("no ext4, this is {name}; {next}"))
}
