//! Pages of a database that are larger than a sector, overwritten in place, and power cuts: what
//! InnoDB's doublewrite buffer and PostgreSQL's full-page writes are for.

use std::sync::Arc;

use crate::bed::{contents, owner, random, spec};
use crate::play::short_log;
use syncline_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use syncline_fs::{MountOptions, Volume};
use syncline_testkit::ImageSpec;
use syncline_testkit::crash::{Budget, CrashDevice, CrashOptions, CrashState, Explorer};

/// Bytes of a page: InnoDB's default.
const PAGE: usize = 16 << 10;
const PAGES: u64 = 24;
const ROUNDS: u8 = 60;

fn mount(dev: Arc<dyn BlockDevice>, clock: Arc<VirtualClock>, options: &str) -> Volume {
    Volume::mount(dev, clock, MountOptions::parse(options).expect("options")).expect("mount")
}

/// Overwrites pages as a database does: one call a page, an fsync after some of them, time between.
/// Returns the power cuts, and the file.
fn database(options: &str, atomic: bool) -> (Explorer, u32) {
    let (_image, base) = short_log(&ImageSpec { size_bytes: 24 << 20, ..spec(4096) }, 480);
    let dev = Arc::new(CrashDevice::new(&base, CrashOptions::default()));
    let clock = Arc::new(VirtualClock::default());
    let volume = mount(dev.clone(), clock.clone(), options);
    let mut random = random(7);
    let file = volume.create(&volume.root().expect("root"), b"db", &owner()).expect("create");
    for page in 0..PAGES {
        volume.write(&file, page * PAGE as u64, &[0; PAGE]).expect("write");
    }
    volume.sync().expect("sync");
    dev.mark(0);
    for round in 1..=ROUNDS {
        let at = random.below(PAGES) * PAGE as u64;
        if atomic {
            let mut staged = volume.begin_atomic(&file).expect("begin");
            volume.write_atomic(&mut staged, at, &[round; PAGE]).expect("stage");
            volume.commit_atomic(staged).expect("commit");
        } else {
            volume.write(&file, at, &[round; PAGE]).expect("write");
            if random.below(3) == 0 {
                volume.fsync(&file, true).expect("fdatasync");
            }
        }
        clock.sleep_until(clock.now_ns() + random.below(20_000_000_000));
        volume.tick(clock.now_ns()).expect("tick");
    }
    let ino = file.ino;
    drop(file);
    (Explorer::new(dev.log()), ino)
}

/// States that were judged, and those with a page that is neither old nor new.
fn torn(options: &str, atomic: bool) -> (u64, u64) {
    let (explorer, ino) = database(options, atomic);
    let mut torn = 0;
    let summary = syncline_testkit::crash::run(
        &explorer,
        &Budget::new(300, 1),
        options,
        |state: &CrashState| {
            if state.marks().is_empty() {
                return Ok(());
            }
            let image: Arc<MemoryDevice> = Arc::new(state.image.snapshot());
            let volume = mount(image, Arc::new(VirtualClock::default()), "sync=eager");
            let file = volume.iget(ino).map_err(|err| err.to_string())?;
            let bytes = contents(&volume, &file);
            let is_mixed = |page: &[u8]| page.iter().any(|byte| *byte != page[0]);
            torn += u64::from(bytes.chunks(PAGE).any(is_mixed));
            Ok(())
        },
    );
    let judged = summary.judged;
    summary.into_result().expect("every state is recovered");
    (judged, torn)
}

/// The reason why neither `innodb_doublewrite=OFF` nor `full_page_writes=off` is recommended: a
/// page that waits for its fsync may be written back meanwhile, in place, and the cut tears it.
#[test]
fn pages_that_are_only_written_and_synced_can_be_torn() {
    for options in ["sync=ordered", "sync=eager", "sync=eager,log=packed"] {
        let (judged, torn) = torn(options, false);
        println!("{options}: {torn} of {judged} states have a torn page");
        assert!(torn > 0, "{options}: no page is torn; then say so in GUARANTEES");
    }
}

#[test]
fn pages_of_atomic_writes_are_never_torn() {
    for options in ["sync=eager", "sync=eager,log=packed"] {
        let (judged, torn) = torn(options, true);
        assert!(judged > 100 && torn == 0, "{options}: {torn} of {judged} states");
    }
}
