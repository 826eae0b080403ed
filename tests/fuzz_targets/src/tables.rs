//! Partition tables, tar archives, messages of D-Bus.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use syncline_control::dbus::Message;
use syncline_device::{MemoryDevice, VirtualClock};
use syncline_fs::build::Size;
use syncline_fs::{MountOptions, Volume};
use syncline_image::archive::{Rules, import_new};
use syncline_image::build::on_device;
use syncline_image::mkfs::Mkfs;
use syncline_image::partition::partitions;

/// Size of a disk whose tables are read.
const DISK_BYTES: usize = 256 << 10;
/// Size of a device that an archive becomes an image on.
const IMAGE_BYTES: u64 = 64 << 20;
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

/// Makes an image of an archive in memory. What comes of it is sound.
fn build(bytes: &[u8]) {
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    let new = Mkfs { time_s: Some(1), ..Mkfs::default() };
    let fill = |tree: &_| {
        import_new(&mut [Box::new(Cursor::new(bytes.to_vec()))], tree, &Rules::default(), &())
    };
    let built = on_device(Box::new(Arc::clone(&device)), Path::new("x"), &new, Size::Minimum, fill);
    if built.is_ok() {
        is_sound(device);
    }
}

/// An image in memory mounts, and the check finds nothing.
pub(crate) fn is_sound(device: Arc<MemoryDevice>) {
    let clock = Arc::new(VirtualClock::new(0));
    let options = MountOptions::default().with(|options| options.read_only = true);
    let volume = Volume::mount(device, clock, options).expect("an image that was made mounts");
    let report = volume.check(&mut |_| true).expect("it can be checked");
    assert!(report.is_clean(), "{report:?}");
}

/// An input is an archive, and the same with right checksums.
pub(crate) fn feed_archive(bytes: &[u8]) {
    build(bytes);
    build(&summed(bytes));
}

/// An archive with right checksums.
pub(crate) fn summed(bytes: &[u8]) -> Vec<u8> {
    let mut right = bytes.to_vec();
    for block in right.chunks_exact_mut(TAR_BLOCK) {
        let byte = |(at, byte): (usize, &u8)| {
            if TAR_SUM.contains(&at) { 32 } else { u32::from(*byte) }
        };
        let sum: u32 = block.iter().enumerate().map(byte).sum();
        block[TAR_SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    right
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
