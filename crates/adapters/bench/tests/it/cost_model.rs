//! The cost model against the stack: N syncs with and without temporal locality, every block and
//! request up to the unmount, held to the equations within 10 %. `--nocapture` prints the paper's
//! equations, the extended ones and what was measured.
//!
//! Before each sync of a file in /a another file, in /b, is overwritten, too, so that M, M', D and
//! D' are all dirty: one block each. All lies within one commit interval.

use std::sync::Arc;

use syncline_bench::cost_model::{Cost, Dirty, InPlace, Locality, Log, eager, ordered, paper};
use syncline_device::{Clock, Counts, MemoryDevice, RecordingDevice, VirtualClock};
use syncline_fs::{Create, InodeRef, MountOptions, Volume};

const SYNCS: u64 = 256;
const BLOCK: usize = 4096;
const WITHIN_PERCENT: f64 = 10.0;
/// Inodes in a block of the inode table.
const INODES_PER_BLOCK: u64 = 16;

fn make(volume: &Volume, dir: &str, name: &str) -> InodeRef {
    let dir = volume.resolve(dir.as_bytes()).unwrap();
    let how = Create { mode: 0o644, uid: 0, gid: 0 };
    let file = volume.create(&dir, name.as_bytes(), &how).unwrap();
    // Two blocks, of which the first is overwritten: neighbours do not merge.
    volume.write(&file, 0, &[1; 2 * BLOCK]).unwrap();
    file
}

fn mkdir(volume: &Volume, name: &str) {
    let root = volume.resolve(b"/").unwrap();
    volume.mkdir(&root, name.as_bytes(), &Create { mode: 0o755, uid: 0, gid: 0 }).unwrap();
}

/// Requests of the syncs, the write-back and the unmount.
fn measure(image: MemoryDevice, sync: &str, locality: Locality) -> Cost {
    let clock = Arc::new(VirtualClock::default());
    let device = Arc::new(RecordingDevice::new(Arc::new(image)));
    let options = MountOptions::parse(&format!("sync={sync},noatime")).unwrap();
    let mount = || {
        let clock: Arc<dyn Clock> = clock.clone();
        Volume::mount(device.clone(), clock, options.clone()).unwrap()
    };
    let volume = mount();
    mkdir(&volume, "a");
    mkdir(&volume, "b");
    for n in 0..SYNCS {
        make(&volume, "/a", &format!("f{n}"));
    }
    make(&volume, "/b", "other");
    volume.unmount().unwrap();

    let volume = mount();
    let files: Vec<InodeRef> =
        (0..SYNCS).map(|n| volume.resolve(format!("/a/f{n}").as_bytes()).unwrap()).collect();
    let other = volume.resolve(b"/b/other").unwrap();
    let start: Counts = device.begin_phase();
    for n in 0..SYNCS {
        // A tick passes, so that each overwrite changes its inode.
        clock.sleep_until(clock.now_ns() + 5_000_000);
        let file = match locality {
            Locality::Same => &files[0],
            Locality::Distinct => &files[n as usize],
        };
        volume.write(&other, 0, &[n as u8; BLOCK]).unwrap();
        volume.write(file, 0, &[n as u8; BLOCK]).unwrap();
        volume.fsync(file, false).unwrap();
    }
    drop((files, other));
    volume.unmount().unwrap();
    let counts = device.counts() - start;
    Cost {
        blocks: counts.written_bytes() / BLOCK as u64,
        requests: counts.write_requests(),
        // The device has FUA; the model counts for one that has not.
        flushes: counts.flushes() + counts.journal.fua_writes,
    }
}

fn off_percent(measured: u64, model: u64) -> f64 {
    (measured as f64 / model as f64 - 1.0) * 100.0
}

fn check(test: &str, locality: Locality) {
    let Some(image) = crate::common::image(test) else { return };
    let dirty = Dirty { metadata: 1, other_metadata: 1, data: 1, other_data: 1 };
    let log = Log::default();
    let place = match locality {
        Locality::Same => InPlace { metadata: 2, metadata_requests: 2, data: 1, data_requests: 1 },
        Locality::Distinct => InPlace {
            metadata: SYNCS / INODES_PER_BLOCK + 1,
            metadata_requests: 2,
            data: SYNCS,
            data_requests: SYNCS,
        },
    };
    let mut wrong = Vec::new();
    for sync in ["ordered", "eager"] {
        let measured = measure(image.snapshot(), sync, locality);
        let (model, blocks, requests) = if sync == "ordered" {
            let model = ordered(SYNCS, &dirty, &log, &place);
            (model, paper::ordered_blocks(SYNCS, &dirty), paper::ordered_requests(SYNCS))
        } else {
            let blocks = paper::eager_blocks(SYNCS, &dirty, locality);
            let model = eager(SYNCS, &dirty, &log, &place);
            (model, blocks, paper::eager_requests(SYNCS, locality))
        };
        let Cost { blocks: b, requests: r, flushes: f } = measured;
        println!(
            "{SYNCS} syncs, {locality:?}, {sync}: blocks {b} (model {}, paper {blocks}), \
             requests {r} (model {}, paper {requests}), flushes {f} (model {})",
            model.blocks, model.requests, model.flushes
        );
        for (name, measured, model) in [
            ("blocks", measured.blocks, model.blocks),
            ("requests", measured.requests, model.requests),
            ("flushes", measured.flushes, model.flushes),
        ] {
            let off = off_percent(measured, model);
            if off.abs() > WITHIN_PERCENT {
                wrong.push(format!("{sync} {name}: {measured}, model {model} ({off:+.1} %)"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn syncs_of_the_same_blocks() {
    check("syncs_of_the_same_blocks", Locality::Same);
}

#[test]
fn syncs_of_other_files() {
    check("syncs_of_other_files", Locality::Distinct);
}
