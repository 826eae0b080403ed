//! Container images and disks in the files of other programs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use syncline_device::{BlockDevice, Kind, MemoryDevice, Origin};
use syncline_image::archive::Rules;
use syncline_image::build::on_device;
use syncline_image::device;
use syncline_image::mkfs::Mkfs;
use syncline_image::oci::{Form, Layers, Source};
use syncline_testkit::scratch_dir;

use crate::tables::{is_sound, summed};

/// Size of a device that layers become an image on.
const IMAGE_BYTES: u64 = 64 << 20;
/// Bytes of a file with a disk in it.
const FILE_BYTES: u64 = 16 << 20;
/// Bytes read of a disk.
const READ_BYTES: u64 = 4 << 20;
const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);

/// An input is a byte that says what the rest is: an archive of either kind, or layers, which a
/// block of bytes 255 parts.
pub(crate) fn feed_layers(bytes: &[u8]) {
    let (how, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let dir = tempfile::tempdir_in(scratch_dir()).expect("scratch space");
    let made = match how % 4 {
        kind @ 0..=1 => {
            let path = dir.path().join("archive");
            std::fs::write(&path, headers_summed(rest)).expect("scratch space");
            let form = if kind == 0 { Form::Docker } else { Form::Archive };
            Source { form, path, reference: None }.layers(None, dir.path(), &())
        }
        _ => {
            let mut parts = vec![Vec::new()];
            for block in rest.chunks(512) {
                match block.iter().all(|byte| *byte == 255) {
                    true => parts.push(Vec::new()),
                    false => parts.iter_mut().last().expect("a part").extend(block),
                }
            }
            let path = |(number, part): (usize, &Vec<u8>)| {
                let path = dir.path().join(number.to_string());
                std::fs::write(&path, headers_summed(part)).expect("scratch space");
                path
            };
            let paths: Vec<_> = parts.iter().enumerate().map(path).collect();
            Layers::of_files(&paths)
        }
    };
    let Ok(layers) = made else { return };
    let image = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    let new = Mkfs { time_s: Some(1), ..Mkfs::default() };
    let size = syncline_fs::build::Size::Minimum;
    let fill = |tree: &_| layers.unpack(tree, &Rules::default(), &());
    if on_device(Box::new(Arc::clone(&image)), Path::new("x"), &new, size, fill).is_ok() {
        is_sound(image);
    }
}

/// An archive whose headers have right checksums, and whose documents are as they were.
fn headers_summed(bytes: &[u8]) -> Vec<u8> {
    let block = |block: &[u8]| match block.get(257..262) {
        Some(b"ustar") => summed(block),
        _ => block.to_vec(),
    };
    bytes.chunks(512).flat_map(block).collect()
}

/// An input is pieces of a file: a place (3 bytes), a length (1 byte), the bytes. Checksums of
/// formats are made right.
pub(crate) fn feed_disks(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new_in(scratch_dir()).expect("scratch space");
    let (file, path) = (file.as_file(), file.path());
    file.set_len(FILE_BYTES).expect("scratch space");
    let mut rest = bytes;
    while let [a, b, c, len, more @ ..] = rest {
        let place = u64::from(u32::from_le_bytes([*a, *b, *c, 0])) % FILE_BYTES;
        let part = &more[..usize::from(*len).min(more.len())];
        file.write_all_at(part, place).expect("scratch space");
        rest = &more[part.len()..];
    }
    let len = file.metadata().expect("scratch space").len() / 512 * 512;
    file.set_len(len).expect("scratch space");
    for at in [64 << 10, 128 << 10] {
        crc_of(file, at, 4096);
    }
    for at in [192 << 10, 256 << 10] {
        crc_of(file, at, 64 << 10);
    }
    sum_of(file, len - 512, 512, 64);
    sum_of(file, 512, 1024, 36);
    let Ok(disk) = device(path, true) else { return };
    let size = disk.geometry().size_bytes;
    let mut part = vec![0; 64 << 10];
    for at in (0..size.min(READ_BYTES)).step_by(part.len()) {
        let part = &mut part[..(size - at).min(64 << 10) as usize];
        // Compressed parts may be damaged.
        let _ = disk.read(at, part, Origin::new(Kind::Other, true));
    }
}

/// The checksum of a structure of VHDX.
fn crc_of(file: &File, at: u64, len: usize) {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).expect("within the file");
    bytes[4..8].fill(0);
    file.write_all_at(&CRC.checksum(&bytes).to_le_bytes(), at + 4).expect("scratch space");
}

/// The sum of a structure of VHD, whose place is `own`.
fn sum_of(file: &File, at: u64, len: usize, own: usize) {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).expect("within the file");
    if bytes.starts_with(b"conectix") || bytes.starts_with(b"cxsparse") {
        bytes[own..own + 4].fill(0);
        let sum: u32 = bytes.iter().map(|byte| u32::from(*byte)).sum();
        file.write_all_at(&(!sum).to_be_bytes(), at + own as u64).expect("scratch space");
    }
}
