//! Partition tables, tar archives, messages of D-Bus.

use std::io::Cursor;

use syncline_control::dbus::Message;
use syncline_device::MemoryDevice;
use syncline_image::archive::estimate;
use syncline_image::partition::partitions;

/// Size of a disk whose tables are read.
const DISK_BYTES: usize = 256 << 10;
/// Bytes of a block of an archive, and the place of its checksum.
const TAR_BLOCK: usize = 512;
const TAR_SUM: std::ops::Range<usize> = 148..156;

/// An input is the front of a disk. Errors are answers.
pub(crate) fn feed_partitions(bytes: &[u8]) {
    let mut disk = bytes[..bytes.len().min(DISK_BYTES)].to_vec();
    disk.resize(DISK_BYTES, 0);
    // What makes a table of them at all.
    disk[510..512].copy_from_slice(&[0x55, 0xAA]);
    let _ = partitions(&MemoryDevice::from_bytes(&disk));
}

/// An input is an archive, and the same with right checksums.
pub(crate) fn feed_archive(bytes: &[u8]) {
    let _ = estimate(&mut Cursor::new(bytes), &());
    let mut right = bytes.to_vec();
    for block in right.chunks_exact_mut(TAR_BLOCK) {
        let byte = |(at, byte): (usize, &u8)| {
            if TAR_SUM.contains(&at) { 32 } else { u32::from(*byte) }
        };
        let sum: u32 = block.iter().enumerate().map(byte).sum();
        block[TAR_SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    let _ = estimate(&mut Cursor::new(&right), &());
}

/// An input is what a bus says.
pub(crate) fn feed_dbus(bytes: &[u8]) {
    if let Ok((message, _)) = Message::read(&mut &bytes[..]) {
        let again = message.encode();
        let (read, _) = Message::read(&mut &again[..]).expect("what was encoded");
        // A client does not say who it is: the bus does.
        assert_eq!(read, Message { sender: String::new(), ..message });
    }
}
