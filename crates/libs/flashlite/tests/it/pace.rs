//! Speed of a log on flash, in virtual time: appends against a plain file that is written in order
//! in the same pieces, and random reads of a download against those of a normal file.
//!
//! The devices are models that were filled once; the file system is that of `lifetime.rs`. Reads
//! find nothing in memory, which is where a page more counts most. Exact, so the bounds are held
//! here; `cargo xtask run flashlite-bench` measures the time of the processor.

use std::io::IoSlice;
use std::sync::Arc;

use parking_lot::Mutex;
use syncline_flashlite::{Log, Options, Storage};

use crate::lifetime::{Disk, Format, META, OnDisk, PAGE};
use crate::support::Watched;

const SIZE: u64 = 64 << 20;
/// Bytes of the device for one file.
const SPACE: u64 = SIZE + SIZE / 8;
/// A prime: its multiples come in a scattered order.
const SCATTER: u64 = 1_000_003;

/// Reads a range of a file, rounded to whole pages.
fn read_pages(disk: &Mutex<Disk>, base: u64, offset: u64, len: u64) {
    let start = offset / PAGE * PAGE;
    let end = (offset + len).next_multiple_of(PAGE);
    disk.lock().read(base + start, end - start);
}

/// A file whose reads all go to the device, in whole pages; and the device.
fn cold(spec: &str) -> (Arc<dyn Storage>, Arc<Mutex<Disk>>) {
    let disk = Disk::new(spec, META + SPACE + (16 << 20), Format::Ext4);
    let disk = Arc::new(Mutex::new(disk));
    let below = OnDisk::new(&disk, META);
    let read = Arc::clone(&disk);
    let watch = move |offset: u64, len: u64, write: bool| {
        if !write {
            read_pages(&read, META, offset, len);
        }
    };
    (Arc::new(Watched { below, watch }), disk)
}

fn now_ns(disk: &Mutex<Disk>) -> u64 {
    disk.lock().now_ns()
}

/// Virtual nanoseconds of a file in pieces, synced each `sync_every` bytes and at its end: in order
/// in a plain file, scattered through a log.
fn append_ns(spec: &str, piece: u64, sync_every: u64, through: Option<Options>) -> u64 {
    let (file, disk) = cold(spec);
    let before = now_ns(&disk);
    let (zeros, pieces) = (vec![0; piece as usize], SIZE / piece);
    let each = (sync_every / piece).max(1);
    if let Some(options) = through {
        let log = Log::create(file, options).unwrap();
        for at in 0..pieces {
            log.write_at(&zeros, at * SCATTER % pieces * piece).unwrap();
            if (at + 1) % each == 0 {
                log.sync_data().unwrap();
            }
        }
        log.close().unwrap();
    } else {
        for at in 0..pieces {
            file.write_at(&[IoSlice::new(&zeros)], at * piece).unwrap();
            if (at + 1) % each == 0 {
                file.sync_data().unwrap();
            }
        }
        file.sync_data().unwrap();
    }
    now_ns(&disk) - before
}

/// Virtual nanoseconds of reads of `len` bytes at pieces that are there already, one after each
/// piece that is written in scattered order.
fn read_ns(spec: &str, piece: u64, len: u64, through: Option<Options>) -> u64 {
    let (file, disk) = cold(spec);
    let log = through.map(|options| Log::create(file.clone(), options).unwrap());
    let (zeros, pieces) = (vec![0; piece as usize], SIZE / piece);
    let mut into = vec![0; len as usize];
    let mut spent = 0;
    for at in 0..pieces {
        let place = |n: u64| n * SCATTER % pieces * piece;
        let offset = place(at * 7919 % (at + 1));
        match &log {
            Some(log) => log.write_at(&zeros, place(at)).unwrap(),
            None => file.write_at(&[IoSlice::new(&zeros)], place(at)).unwrap(),
        }
        let before = now_ns(&disk);
        match &log {
            Some(log) => assert_eq!(log.read_at(&mut into, offset).unwrap(), into.len()),
            None => read_pages(&disk, META, offset, len),
        }
        spent += now_ns(&disk) - before;
    }
    spent
}

const DEVICES: [&str; 4] = ["nexus7-emmc", "ssd-850pro", "ssd-mtron", "sd-2012"];
const PIECES: [u64; 3] = [16 << 10, 240 << 10, 256 << 10];

#[test]
fn appends_are_as_fast_as_writes_in_order() {
    let cards = Options { page_bytes: 16 << 10, ..Options::default() };
    for spec in DEVICES {
        for piece in PIECES {
            let share = |sync_every: u64, options: Options| {
                let plain_ns = append_ns(spec, piece, sync_every, None);
                plain_ns as f64 / append_ns(spec, piece, sync_every, Some(options)) as f64
            };
            let [end, mib, each] =
                [u64::MAX, 1 << 20, piece].map(|every| share(every, Options::default()));
            let card = share(1 << 20, cards);
            let kib = piece >> 10;
            println!(
                r#"{{"device":"{spec}","kib":"{kib}","end":{end},"mib":{mib},{}}}"#,
                format_args!(r#""each":{each},"card":{card}"#)
            );
            assert!(card >= 0.9, "{spec}, {piece}: {card}");
            if spec != "sd-2012" {
                assert!(end >= 0.9 && mib >= 0.9, "{spec}, {piece}: {end}, {mib}");
            }
        }
    }
}

#[test]
fn reads_of_a_download_take_as_long_as_those_of_a_file() {
    for spec in DEVICES {
        for piece in PIECES {
            let [small, large] = [4 << 10, 16 << 10].map(|len| {
                let plain_ns = read_ns(spec, piece, len, None);
                read_ns(spec, piece, len, Some(Options::default())) as f64 / plain_ns as f64
            });
            println!(
                r#"{{"device":"{spec}","kib":"{}","small":{small},"large":{large}}}"#,
                piece >> 10
            );
            // Data are aligned as those of a file are, so a read takes as many pages.
            assert!(small <= 1.05 && large <= 1.05, "{spec}, {piece}: {small}, {large}");
        }
    }
}
