//! Replay of traces: exact counts of a small one, and repeatability.

use syncline_fs::{MountOptions, SyncMode};
use syncline_lab::Unobserved;
use syncline_lab::bench::{Image, ImageSource};
use syncline_lab::replay::{Contents, Replay, ReplayTrace, Replayed, replay_table};
use syncline_lab::trace::{Names, Op, Record};
use syncline_nand::Profile;
use syncline_testkit::{Need, require};

fn replay(mount: &MountOptions, image: &Image, trace: &ReplayTrace) -> Replayed {
    replay_on("nexus7-emmc", 10_000_000, mount, image, trace)
}

fn replay_on(
    device: &str,
    gap_max_ns: u64,
    mount: &MountOptions,
    image: &Image,
    trace: &ReplayTrace,
) -> Replayed {
    let profile = Profile::parse_built_in(device).unwrap();
    let replay = Replay {
        profile: &profile,
        image,
        mount,
        gap_max_ns,
        seed: 1,
        contents: Contents::Noise,
        fill_percent: None,
        flashlite: None,
        used: false,
    };
    replay.run(trace, &Unobserved).unwrap()
}

/// Twenty times: a page of a file that was there, an fsync, and a page of another file.
fn small() -> ReplayTrace {
    let mut names = Names::default();
    let (db, log) = (names.intern("/data/app/a.db"), names.intern("/data/app/log"));
    let on = |op, file, n: u64| Record { file, ..Record::new(n * 1_000_000, op) };
    let mut records = vec![on(Op::Create, log, 0)];
    for n in 0..20 {
        let size_bytes = Some(1 << 20);
        records.push(Record { size_bytes, ..on(Op::Write, db, n).range(n * 8192, 4096) });
        records.push(on(Op::Write, log, n).range(n * 4096, 4096));
        records.push(on(Op::Fsync, db, n));
    }
    let gone = names.intern("/data/none");
    records.push(Record { result: Some(-2), ..on(Op::Unlink, gone, 30) });
    ReplayTrace { name: "small".into(), records, names }
}

#[test]
fn a_small_trace_is_replayed_exactly_and_twice_alike() {
    if !require("a_small_trace_is_replayed_exactly", &[Need::E2fsck]) {
        return;
    }
    let image = &Image::load(&ImageSource::default()).unwrap();
    let trace = small();
    let eager = MountOptions::default();
    let ordered = MountOptions::default().with(|options| options.sync = SyncMode::Ordered);
    let runs = [&ordered, &eager].map(|mount| replay(mount, image, &trace));
    assert_eq!(runs[0], replay(&ordered, image, &trace), "a run repeats");
    for replayed in &runs {
        let (metrics, skipped) = (&replayed.run.metrics, replayed.skipped);
        assert_eq!((metrics.operations, skipped, metrics.app_bytes), (61, 0, Some(40 * 4096)));
        let device = metrics.device.as_ref().unwrap();
        assert!(device.flushes >= 20, "{device:?}");
    }
    // A sync in ordered mode: the page of its file in place, the rest in the journal; of the other
    // file no block is allocated yet. In eager mode the page is in the journal, too.
    let [ordered_split, eager_split] = runs.each_ref().map(|replayed| replayed.split);
    assert_eq!(ordered_split.synced_file_bytes, 20 * 4096, "{ordered_split:?}");
    assert_eq!((ordered_split.other_files_bytes, eager_split.synced_file_bytes), (0, 0));
    assert!(eager_split.journal_bytes < ordered_split.journal_bytes + 20 * 4096);
    assert!(ordered_split.sync_ratio() > 0.5 && eager_split.sync_writes >= 20);
    let requests = runs.each_ref().map(|r| r.run.metrics.device.as_ref().unwrap().write_requests);
    assert!(requests[1] < requests[0], "eager writes in fewer requests: {requests:?}");
    let table = replay_table(&runs);
    assert!(table.contains("small") && table.contains("ratio"), "{table}");
    assert_eq!(replay_table(&runs[..1]), "", "one mode alone has nothing to compare with");
}

/// A card with one log block, which merges 4 MiB for each address that does not follow, and a cache
/// of 4 MiB. Virtual time of whole runs: along the files, the default, never more than in the order
/// of LRU, and less than half of that file by file.
#[test]
fn along_the_files_programs_take_less_than_half_on_a_card() {
    if !require("along_the_files_programs_take_less_than_half_on_a_card", &[Need::E2fsck]) {
        return;
    }
    let image = &Image::load(&ImageSource::default()).unwrap();
    let shipped = ReplayTrace::shipped().unwrap();
    let (mut all_file_s, mut all_space_s) = (0.0, 0.0);
    for trace in shipped.iter().filter(|t| ["dpkg", "git", "video"].contains(&t.name.as_str())) {
        let seconds = |order: &str| {
            let mount = MountOptions::parse(&format!("cache=4M{order}")).unwrap();
            replay_on("sd-2012:log_blocks=1", 0, &mount, image, trace).run.metrics.duration_s
        };
        let file_s = seconds(",writeback=file");
        let lru_s = seconds(",writeback=policy,policy=lru");
        let space_s = seconds("");
        assert!(space_s <= lru_s, "{}: {space_s} s, LRU {lru_s} s", trace.name);
        (all_file_s, all_space_s) = (all_file_s + file_s, all_space_s + space_s);
    }
    assert!(all_space_s * 2.0 < all_file_s, "{all_space_s} s, by file {all_file_s} s");
}
