//! Readers of this crate under hostile bytes: errors, never a panic, bounded work.

mod build;
mod container;
mod mkfs;
mod qcow2;
mod resize;

use std::io::Cursor;
use std::sync::Arc;

use syncline_device::{BlockDevice, MemoryDevice, VirtualClock};
use syncline_fs::build::Size;
use syncline_fs::{MountOptions, Volume};
use syncline_image::archive::{Rules, import_new};
use syncline_image::build::on_device;
use syncline_image::mkfs::Mkfs;
use syncline_image::partition::{Part, part_of, partitions};
use syncline_testkit::{FuzzRounds, Random};

fn crc(bytes: &[u8]) -> u32 {
    crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC).checksum(bytes)
}

/// A disk of 1 MiB with a GPT of one partition, its checksums right whatever `change` did.
fn gpt(change: impl FnOnce(&mut [u8], &mut [u8])) -> Vec<u8> {
    let mut disk = vec![0; 1 << 20];
    disk[446 + 4] = 0xEE;
    disk[510..512].copy_from_slice(&[0x55, 0xAA]);
    let (mut header, mut entries) = (vec![0; 92], vec![0; 4 * 128]);
    header[..8].copy_from_slice(b"EFI PART");
    header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
    header[72..80].copy_from_slice(&2_u64.to_le_bytes());
    header[80..84].copy_from_slice(&4_u32.to_le_bytes());
    header[84..88].copy_from_slice(&128_u32.to_le_bytes());
    entries[..16].fill(7);
    entries[32..40].copy_from_slice(&64_u64.to_le_bytes());
    entries[40..48].copy_from_slice(&1023_u64.to_le_bytes());
    entries[56] = b'r';
    change(&mut header, &mut entries);
    header[88..92].copy_from_slice(&crc(&entries).to_le_bytes());
    let sum = crc(&header);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    disk[512..604].copy_from_slice(&header);
    disk[1024..1536].copy_from_slice(&entries);
    disk
}

fn device(bytes: &[u8]) -> Arc<dyn BlockDevice> {
    let device = MemoryDevice::new(bytes.len() as u64);
    let origin = syncline_device::Origin::new(syncline_device::Kind::Other, true);
    device.write(0, bytes, origin).unwrap();
    Arc::new(device)
}

fn said(bytes: &[u8]) -> String {
    partitions(&*device(bytes)).unwrap_err().to_string()
}

#[test]
fn a_table_gives_its_partitions() {
    let found = partitions(&*device(&gpt(|_, _| {}))).unwrap();
    let [only] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((only.number, only.start_bytes, only.size_bytes), (1, 64 * 512, 960 * 512));
    assert_eq!(only.label, "r");
    let part = part_of(device(&gpt(|_, _| {})), Part::Partition(1), "x".as_ref()).unwrap();
    assert_eq!(part.geometry().size_bytes, 960 * 512);
    assert!(partitions(&*device(&[0; 4096])).unwrap().is_empty());
}

#[test]
fn tables_with_right_checksums_and_wrong_contents_are_refused() {
    let many = gpt(|header, _| header[80..84].fill(0xFF));
    assert!(said(&many).contains("4294967295 entries of 128 bytes; repair"), "{}", said(&many));
    let odd = gpt(|header, _| header[84..88].copy_from_slice(&7_u32.to_le_bytes()));
    assert!(said(&odd).contains("entries of 7 bytes"));
    let far = gpt(|header, _| header[72..80].fill(0xFF));
    assert!(said(&far).contains("no entries") || said(&far).contains("beyond"));
    let beyond = gpt(|_, entries| entries[40..48].copy_from_slice(&(1_u64 << 40).to_le_bytes()));
    assert!(said(&beyond).contains("puts partition 1 beyond the end"));
    let backwards = gpt(|_, entries| entries[40..48].copy_from_slice(&3_u64.to_le_bytes()));
    assert!(said(&backwards).contains("puts partition 1 beyond the end"));
    let mut torn = gpt(|_, _| {});
    torn[1030] ^= 1;
    assert!(said(&torn).contains("entries with a wrong checksum"));
}

#[test]
fn a_chain_that_goes_round_ends() {
    let mut disk = vec![0; 1 << 20];
    disk[510..512].copy_from_slice(&[0x55, 0xAA]);
    disk[446 + 4] = 5;
    disk[446 + 8] = 10;
    let link = 10 * 512;
    disk[link + 510..link + 512].copy_from_slice(&[0x55, 0xAA]);
    disk[link + 462 + 4] = 5;
    // A link to nowhere ends it; one to itself is found out.
    assert!(partitions(&*device(&disk)).unwrap().is_empty());
    disk[link + 462 + 8] = 1;
    let next = 11 * 512;
    let sector = disk[link..link + 512].to_vec();
    disk[next..next + 512].copy_from_slice(&sector);
    assert!(said(&disk).contains("does not end; repair"), "{}", said(&disk));
}

/// Inodes that the members of an archive become; none if it is refused. The image is sound.
fn inodes(archive: &[u8]) -> Option<u32> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let new = Mkfs { time_s: Some(1), ..Mkfs::default() };
    let fill = |tree: &_| {
        import_new(&mut [Box::new(Cursor::new(archive.to_vec()))], tree, &Rules::default(), &())
    };
    on_device(Box::new(Arc::clone(&device)), "x".as_ref(), &new, Size::Minimum, fill).ok()?;
    let options = MountOptions::default().with(|options| options.read_only = true);
    let volume = Volume::mount(device, Arc::new(VirtualClock::new(0)), options).unwrap();
    let report = volume.check(&mut |_| true).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let space = volume.statfs();
    // Without root, lost+found and those that are reserved.
    Some((space.files - space.files_free) as u32 - 11)
}

#[test]
fn a_member_of_more_bytes_than_there_are_numbers_for_is_refused() {
    for kind in [b'0', b'x', b'L', b'D'] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_mode(0o644);
        // In binary, as for sizes beyond 8 GiB.
        header.as_mut_bytes()[124..136].fill(0xff);
        header.as_mut_bytes()[124] = 0x80;
        header.set_cksum();
        let archive = [&header.as_bytes()[..], &[0; 1024]].concat();
        assert!(inodes(&archive).is_none(), "{}", kind as char);
    }
}

#[test]
fn fuzz_of_tables_and_archives() {
    let mut archive = Vec::new();
    {
        let mut builder = tar::Builder::new(&mut archive);
        for n in 0..4_u8 {
            let mut header = tar::Header::new_gnu();
            header.set_size(700);
            header.set_mode(0o644);
            header.set_cksum();
            let name = format!("x{}/{n}", "d".repeat(usize::from(n) * 60));
            builder.append_data(&mut header, name, &[n; 700][..]).unwrap();
        }
        builder.append_pax_extensions([("SCHILY.xattr.user.a", &b"1\n2"[..])]).unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        header.set_cksum();
        builder.append_data(&mut header, "last", &[][..]).unwrap();
        builder.finish().unwrap();
    }
    // With the directories that their names imply.
    assert_eq!(inodes(&archive), Some(9));
    let disk = gpt(|_, _| {});
    let mut random = Random::new(5);
    let (mut rounds, mut good) = (0_u64, 0_u64);
    for _ in FuzzRounds::at_least(2000) {
        rounds += 1;
        let mut bytes = archive.clone();
        let block = random.index(bytes.len() / 512) * 512;
        for _ in 0..=random.below(3) {
            bytes[block + random.index(512)] = random.bits() as u8;
        }
        // A right checksum, so that what is behind it is reached.
        let sum: u32 = (0..512)
            .map(|at| if (148..156).contains(&at) { 32 } else { u32::from(bytes[block + at]) })
            .sum();
        if random.one_in(2) {
            bytes[block + 148..block + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        bytes.truncate(bytes.len() - random.index(bytes.len() / 4));
        good += u64::from(inodes(&bytes).is_some());
        let mut bytes = disk.clone();
        for _ in 0..=random.below(4) {
            let at = [446, 510, 512, 1024][random.index(4)] + random.index(90);
            bytes[at] = random.bits() as u8;
        }
        // Errors are fine.
        let _ = partitions(&*device(&bytes));
        let _ = partitions(&*device(&gpt(|header, entries| {
            header[72 + random.index(16)] = random.bits() as u8;
            entries[random.index(128)] = random.bits() as u8;
        })));
    }
    assert!(good > 20, "{good} of {rounds}: the mutations are too wild");
}
