//! Guard against overwriting a mounted or formatted device by mistake.
//!
//! It finds the signatures of file systems, partition tables and volume managers ([`MARKS`]).
//! [`FileDevice::open`] fails for a device in use. Tested through `syncline
//! replay`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use syncline_device::{DeviceError, FileDevice, FileOptions};

use crate::error::{LabError, Result};

/// Signatures of contents: name, offset in bytes, bytes.
const MARKS: [(&str, u64, &[u8]); 22] = [
    ("an ext2, ext3 or ext4 file system", 1080, &[0x53, 0xEF]),
    ("an XFS", 0, b"XFSB"),
    ("a btrfs", 65_600, b"_BHRfS_M"),
    ("an F2FS", 1024, &[0x10, 0x20, 0xF5, 0xF2]),
    ("an EROFS", 1024, &[0xE2, 0xE1, 0xF5, 0xE0]),
    ("a bcachefs", 4120, &[0xC6, 0x85, 0x73, 0xF6]),
    ("a squashfs", 0, b"hsqs"),
    ("a FAT file system", 54, b"FAT"),
    ("a FAT file system", 82, b"FAT32"),
    ("an exFAT", 3, b"EXFAT"),
    ("an NTFS", 3, b"NTFS"),
    ("an ISO 9660", 32_769, b"CD001"),
    ("a UDF", 32_769, b"BEA01"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("an LVM volume", 512, b"LABELONE"),
    ("a LUKS volume", 0, b"LUKS"),
    ("a RAID member", 4096, &[0xFC, 0x4E, 0x2B, 0xA9]),
    ("a ReiserFS", 65_588, b"ReIsEr"),
    ("a JFS", 32_768, b"JFS1"),
    ("a partition table", 512, b"EFI PART"),
    ("a partition table", 4096, b"EFI PART"),
    ("a boot sector or partition table", 510, &[0x55, 0xAA]),
];

/// Recognises the contents of a file or device by their marks.
fn carries(path: &Path) -> Result<Option<&'static str>> {
    let failed = |err: std::io::Error| host(path, &err);
    let file = File::open(path).map_err(failed)?;
    for (what, offset, mark) in MARKS {
        let mut bytes = vec![0; mark.len()];
        match file.read_exact_at(&mut bytes, offset) {
            Ok(()) if bytes == mark => return Ok(Some(what)),
            // Shorter than that.
            Err(err) if err.kind() != std::io::ErrorKind::UnexpectedEof => return Err(failed(err)),
            _ => {}
        }
    }
    Ok(None)
}

fn host(path: &Path, err: &std::io::Error) -> LabError {
    LabError::Failed(format!("{}: {err}; check the path and its permissions", path.display()))
}

/// Opens a device to be played on. `overwrite` and `yes` are what the user said.
pub fn open(path: &Path, writes: bool, overwrite: bool, yes: bool) -> Result<FileDevice> {
    // Workers do requests at the same time, each with calls of its own.
    let options = FileOptions { io_uring: false, read_only: !writes, ..FileOptions::default() };
    if !writes {
        // Reading does not disturb other users of the device.
        return Ok(FileDevice::open(path, FileOptions { lock: false, ..options })?);
    }
    let shown = path.display();
    if !overwrite {
        let text = format!("{shown}: the trace writes to it and destroys what is there; say so");
        return Err(LabError::Usage(text + " with --overwrite"));
    }
    if yes {
        return Ok(FileDevice::open(path, FileOptions { lock: false, ..options })?);
    }
    if let Some(what) = carries(path)? {
        let text = format!("{shown} carries {what}; if it may be lost, add --yes");
        return Err(LabError::Failed(text));
    }
    match FileDevice::open(path, options) {
        Err(DeviceError::Open { errno, reason, .. }) if [BUSY, LOCKED].contains(&errno) => {
            let text = format!("{shown} is mounted or in use: {reason}; or add --yes");
            Err(LabError::Failed(text))
        }
        opened => Ok(opened?),
    }
}

/// EBUSY: what O_EXCL gives for a device in use.
const BUSY: i32 = 16;
/// EAGAIN: what a lock gives that somebody else has.
const LOCKED: i32 = 11;
