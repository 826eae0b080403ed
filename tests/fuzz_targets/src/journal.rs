//! Logs of a volume that was not unmounted, in each format.

use std::sync::{Arc, OnceLock};

use syncline_device::{BlockDevice, MemoryDevice, VirtualClock};
use syncline_fs::{Create, MountOptions, Volume};
use syncline_ondisk::packed;
use syncline_testkit::{ImageSpec, mkfs};

use crate::bytes::Bytes;
use crate::image;

/// Formats of the log: without checksums, with one of each transaction, packed records.
const OPTIONS: [&str; 3] = ["sync=ordered", "sync=eager", "sync=eager,log=packed"];
/// Bytes of a block of the images.
const BLOCK: u64 = 1024;
/// Bytes of the log.
const LOG_BYTES: u64 = 1 << 20;
/// Longest packed record, in bytes.
const RECORD_BYTES_MAX: usize = 64 << 10;
/// Most changes of one input.
const CHANGES_MAX: usize = 32;

/// An image, the place of its log, and the blocks of the log that are not zero.
struct Crashed {
    device: MemoryDevice,
    log: u64,
    used: Vec<u64>,
}

fn crashed(options: &str) -> Crashed {
    let spec = ImageSpec {
        features: "^metadata_csum".into(),
        block_size_bytes: BLOCK as u32,
        journal_size_mib: Some(1),
        inode_count: Some(64),
        ..ImageSpec::with_size(6 << 20)
    };
    let device = MemoryDevice::load(mkfs(&spec).path()).expect("an image that was just made");
    let device = Arc::new(device);
    let options = MountOptions::parse(options).expect("options of the table");
    let volume = Volume::mount(device.clone(), Arc::new(VirtualClock::default()), options);
    let volume = volume.expect("a stock image");
    let root = volume.root().expect("a root");
    let owner = Create { mode: 0o644, uid: 1, gid: 1 };
    for nr in 0..12_u8 {
        let name = format!("f{nr}");
        let file = volume.create(&root, name.as_bytes(), &owner).expect("room");
        volume.write(&file, 0, &[nr; 3000]).expect("room");
        volume.fsync(&file, false).expect("memory");
        if nr % 3 == 2 {
            volume.unlink(&root, name.as_bytes()).expect("it is there");
        }
    }
    let device = device.snapshot();
    let blocks = device.geometry().size_bytes / BLOCK;
    let contents = |nr: u64| {
        let mut block = [0; BLOCK as usize];
        device.read_at(nr * BLOCK, &mut block).expect("inside");
        block
    };
    let log = (0..blocks).find(|nr| contents(*nr).starts_with(&[0xc0, 0x3b, 0x39, 0x98]));
    let log = log.expect("the superblock of the log") * BLOCK;
    let used = (log / BLOCK..(log + LOG_BYTES) / BLOCK).filter(|nr| contents(*nr) != [0; 1024]);
    let used = used.map(|nr| nr * BLOCK).collect();
    Crashed { device, log, used }
}

fn bases() -> &'static [Crashed] {
    static BASES: OnceLock<Vec<Crashed>> = OnceLock::new();
    BASES.get_or_init(|| OPTIONS.iter().map(|options| crashed(options)).collect())
}

/// An input is one byte that chooses the format, and changes: block of the log, place in it,
/// length, bytes. Checksums of packed records are made right again, so that changes get past them.
pub(crate) fn feed(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let base = &bases()[usize::from(bytes.u8()) % OPTIONS.len()];
    let device = base.device.snapshot();
    for _ in 0..CHANGES_MAX {
        if bytes.is_empty() {
            break;
        }
        let block = base.used[usize::from(bytes.u16()) % base.used.len()];
        let (at, len) = (u64::from(bytes.u16()) % BLOCK, usize::from(bytes.u8() % 16));
        let change = bytes.take(len);
        let change = &change[..change.len().min((BLOCK - at) as usize)];
        device.write_at(block + at, change).expect("inside");
    }
    seal(&device, base);
    image::judge(&device);
}

fn seal(device: &MemoryDevice, base: &Crashed) {
    let mut uuid = [0; 16];
    device.read_at(base.log + 0x30, &mut uuid).expect("inside");
    let seed = packed::seed(&uuid);
    for at in &base.used {
        let end = (base.log + LOG_BYTES - at).min(RECORD_BYTES_MAX as u64) as usize;
        let mut record = vec![0; end];
        device.read_at(*at, &mut record).expect("inside");
        let len = u32::from_le_bytes([record[12], record[13], record[14], record[15]]) as usize;
        if record.starts_with(&packed::MAGIC) && (32..=end).contains(&len) {
            let crc = syncline_ondisk::checksum::crc32c_skipping(seed, &record[..len], 0x1c);
            device.write_at(at + 0x1c, &crc.to_le_bytes()).expect("inside");
        }
    }
}
