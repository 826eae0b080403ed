//! One hour in virtual time on the simulated eMMC, with three events that overlap.

use std::sync::Arc;

use syncline_device::{Clock, MemoryDevice, VirtualClock};
use syncline_fs::{MountOptions, Volume};
use syncline_nand::{NandDevice, Profile};
use syncline_recorder::format::file_name;
use syncline_recorder::{Config, Producer, Report, VolumeStrategy, ring};
use syncline_testkit::{ImageSpec, Need, mkfs, require};

use crate::support::{Files, Kept, found, volume_bytes};

const PERIOD_NS: u64 = 5_000_000;
const HOUR: u64 = 3600 * 1_000_000_000 / PERIOD_NS;

/// Records due until now are pushed, each with the time at which it was due. How many there were.
fn push_due(producer: &mut Producer, clock: &VirtualClock, start_ns: u64, bytes: &mut [u8]) -> u64 {
    let mut count = 0;
    loop {
        let sequence = producer.next_sequence();
        let due_ns = start_ns + sequence * PERIOD_NS;
        if sequence >= HOUR || clock.now_ns() < due_ns {
            return count;
        }
        bytes[..8].copy_from_slice(&sequence.to_le_bytes());
        producer.push(due_ns, bytes).expect("the ring has room");
        count += 1;
    }
}

#[test]
fn an_hour_with_three_overlapping_events_loses_no_period() {
    if !require("an_hour_with_three_overlapping_events_loses_no_period", &[Need::E2fsck]) {
        return;
    }
    let bytes = std::env::var("SYNCLINE_RECORD_BYTES").ok().and_then(|text| text.parse().ok());
    let config = Config {
        payload_bytes_max: bytes.unwrap_or(960),
        writeback_bytes: 128 << 10,
        ..Config::default()
    };
    let size_bytes = (config.file_bytes_max() * 3 + (64 << 20)).next_multiple_of(1 << 20);
    let image = mkfs(&ImageSpec { size_bytes, ..ImageSpec::default() });
    let clock = Arc::new(VirtualClock::default());
    let profile = Profile::by_name("nexus7-emmc").unwrap();
    let backing = Arc::new(MemoryDevice::from_bytes(&image.bytes()));
    let flash = NandDevice::new(&profile, backing, clock.clone()).unwrap();
    let options = MountOptions::parse("sync=eager,noatime,lazytime").unwrap();
    let volume = Volume::mount(Arc::new(flash), clock.clone(), options).unwrap();
    let strategy = VolumeStrategy::new(Files(volume), config.recorder, config.file_bytes_max());
    let volume = &strategy.volume().0;

    let (mut producer, trigger, mut machine) = ring(&config).unwrap();
    let mut kept = Kept::default();
    let mut payload = vec![0; config.payload_bytes_max as usize];
    let start_ns = clock.now_ns();
    // Two seconds apart, each ten seconds long; the third is cut short at its fault.
    let mut faults = [(240_000_u64, 2000), (240_400, 2000), (240_800, 500)].into_iter().peekable();
    let mut worst_backlog = 0;
    while producer.next_sequence() < HOUR {
        clock.sleep_until(start_ns + producer.next_sequence() * PERIOD_NS);
        if let Some((_, post)) = faults.next_if(|fault| producer.next_sequence() >= fault.0) {
            trigger.fire_for(post);
        }
        worst_backlog = push_due(&mut producer, &clock, start_ns, &mut payload).max(worst_backlog);
        while machine.step(&strategy, &mut kept).more {}
        // One thread: the records that fall due while a job runs are pushed after it.
        kept.work(&mut machine, &strategy);
        if volume.next_deadline_ns().is_some_and(|due_ns| due_ns <= clock.now_ns()) {
            volume.tick(clock.now_ns()).unwrap();
        }
    }
    kept.end(&mut machine, &strategy);

    assert_eq!((producer.next_sequence(), producer.lost()), (720_000, 0));
    println!("worst backlog {worst_backlog} periods of {}", config.slack_records);
    assert!(worst_backlog < u64::from(config.slack_records) / 2, "{worst_backlog} periods");
    assert!(worst_backlog > 1, "the device takes time");
    for (event, fault, records) in [(1, 240_000, 3001), (2, 240_400, 3001), (3, 240_800, 1501)] {
        let finished = Report::Finished { event, records, durable: true };
        assert!(kept.reports.contains(&finished), "{event}: {:?}", kept.reports);
        let file = volume_bytes(volume, &file_name(config.recorder, event)).unwrap();
        assert_eq!(file.len() as u64, (records + 1) * config.slot_bytes());
        let found = found(&file).unwrap();
        assert!(found.summary.is_whole(), "{:?}", found.summary);
        let first = fault - 1000;
        assert_eq!(found.summary.sequences, Some((first, first + records - 1)));
        assert!((first..).zip(&found.records).all(|(n, r)| r.1[..8] == n.to_le_bytes()));
    }
    let overlap = |at: u64| {
        kept.reports.iter().any(|r| matches!(r, Report::Started { event, .. } if *event == at))
    };
    assert!((1..=3).all(overlap));
    strategy.volume().0.clone().unmount().ok();
}
