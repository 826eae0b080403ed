//! Runs: they repeat exactly, stop when told to, leave a clean image, and their figures add up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use syncline_fs::MountOptions;
use syncline_lab::bench::{
    APPLICATIONS, DAY_CONFIGS, DayRun, FJORD_CONFIGS, Fjord, FjordRun, Image, JournalMode,
    Parameters, Simulation, Stack, WORKLOADS, find,
};
use syncline_lab::{Observer, Unobserved};
use syncline_nand::Profile;
use syncline_sqlite::Barriers;
use syncline_testkit::e2fsck_clean;

/// A run, and whether e2fsck finds the image it leaves clean.
fn on_stack(
    mount: &MountOptions,
    image: &Image,
    workload: &str,
    parameters: &Parameters,
    observer: &dyn Observer,
) -> syncline_lab::bench::Run {
    let profile = Profile::by_name("nexus7-emmc").unwrap();
    let stack = Stack::new(&profile, image.snapshot(), 0).unwrap();
    let simulation = Simulation { profile: &profile, image, mount, parameters };
    let run = simulation.run_on(&stack, find(workload).unwrap()[0], observer).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    Arc::clone(&stack.memory).to_file(file.path()).unwrap();
    e2fsck_clean(file.path()).unwrap_or_else(|said| panic!("{workload}: {said}"));
    run
}

#[test]
fn barriers_spare_flushes_and_cuts_take_whole_transactions() {
    let name = "barriers_spare_flushes_and_cuts_take_whole_transactions";
    let Some(image) = crate::common::image(name) else { return };
    let mount = MountOptions::default();
    let run_on = |device, barriers| {
        let profile = Profile::parse_built_in(device).unwrap();
        let parameters =
            Parameters { operations: Some(60), barriers, cuts: 4, ..Parameters::default() };
        let simulation =
            Simulation { profile: &profile, image, mount: &mount, parameters: &parameters };
        let entry = find("sqlite/insert").unwrap()[0];
        let run = simulation.run(entry, &Unobserved).unwrap();
        let flushes = run.foreground.device.as_ref().unwrap().flushes;
        (flushes, run.metrics.lost_transactions_max.unwrap())
    };
    let run = |barriers| run_on("emmc-51:fua=false", barriers);
    // One transaction in DELETE mode is undone by its journal, which comes back.
    assert_eq!(run(Barriers::None), (180, 1));
    assert_eq!(run_on("emmc-51", Barriers::None), (0, 1), "FUA writes");
    assert_eq!(run(Barriers::Order), (60, 1));
    let (flushes, lost) = run(Barriers::All);
    assert!(flushes == 0 && (1..10).contains(&lost), "{flushes} flushes, {lost} lost");
}

#[test]
fn every_workload_runs_twice_alike_and_leaves_a_clean_image() {
    let Some(image) = crate::common::image("every_workload_runs_twice_alike") else { return };
    let mounts = [crate::common::ordered(), MountOptions::default()];
    for (entry, mount) in WORKLOADS.iter().flat_map(|e| mounts.iter().map(move |m| (e, m))) {
        let parameters = crate::common::parameters(JournalMode::Delete, Some(20));
        let first = on_stack(mount, image, entry.name, &parameters, &Unobserved);
        let second = crate::common::run_as(mount, image, "nexus7-emmc", entry.name, &parameters);
        assert_eq!(first, second, "{}", entry.name);
        assert_eq!((first.metrics.operations, first.interrupted), (20, false));
        let (all, fore) = (first.metrics.device.unwrap(), first.foreground.device.unwrap());
        assert!(all.write_requests >= fore.write_requests, "{}", entry.name);
        let kinds = all.journal_bytes + all.data_bytes + all.metadata_bytes;
        assert_eq!(kinds, all.written_bytes, "{}: every byte has a kind", entry.name);
        assert!(first.metrics.duration_s >= first.foreground.duration_s, "{}", entry.name);
        assert!(first.foreground.duration_s > 0.0, "{}: calls take time", entry.name);
    }
}

#[test]
fn every_journal_mode_repeats() {
    let Some(image) = crate::common::image("every_journal_mode_repeats") else { return };
    for mode in JournalMode::ALL {
        let mut mount = MountOptions::default();
        if mode == JournalMode::Atomic {
            mount.apply("sync=eager").unwrap();
        }
        let parameters = crate::common::parameters(mode, Some(30));
        let first = on_stack(&mount, image, "sqlite/update", &parameters, &Unobserved);
        let second =
            crate::common::run_as(&mount, image, "nexus7-emmc", "sqlite/update", &parameters);
        assert_eq!(first, second, "{mode:?}");
        assert_eq!(first.config.journal_mode.as_deref(), Some(mode.name()));
    }
}

#[test]
fn another_seed_is_another_run() {
    let Some(image) = crate::common::image("another_seed_is_another_run") else { return };
    let workload = "fileio/random-overwrite-fsync";
    let one = crate::common::parameters(JournalMode::Delete, Some(50));
    let two = Parameters { seed: 2, ..one.clone() };
    let (one, two) = (
        crate::common::run(image, "nexus7-emmc", workload, &one),
        crate::common::run(image, "nexus7-emmc", workload, &two),
    );
    assert_ne!(one.metrics.duration_s, two.metrics.duration_s);
}

#[test]
fn a_run_ends_with_its_time_and_reports_the_percentiles() {
    let Some(image) = crate::common::image("a_run_ends_with_its_time") else { return };
    for workload in ["sqlite/insert", "sqlite/update", "fileio/sequential-256k-fsync", "mixed"] {
        let run = |operations, runtime_ns, time_based| {
            let percentiles = vec![50.0, 99.9];
            let parameters = Parameters {
                runtime_ns,
                time_based,
                percentiles,
                ..crate::common::parameters(JournalMode::Delete, operations)
            };
            crate::common::run(image, "nexus7-emmc", workload, &parameters)
        };
        let found = run(Some(5), Some(2_000_000_000), true);
        let figures = &found.foreground;
        assert!(figures.operations > 5 && !found.interrupted, "{workload}: {figures:?}");
        // The last operation may last longer.
        let most_s = 2.0 + figures.latency_us_max / 1e6 + 0.1;
        assert!((2.0..most_s).contains(&figures.duration_s), "{workload}: {figures:?}");
        let percentiles = &figures.latency_us_percentiles;
        assert_eq!(percentiles["50"], figures.latency_us_p50);
        assert!(percentiles["99.9"] >= figures.latency_us_p99, "{workload}: {percentiles:?}");
        // Whichever comes first.
        assert_eq!(run(Some(3), Some(3_600_000_000_000), false).metrics.operations, 3);
        assert!(run(Some(60), Some(50_000_000), false).metrics.operations < 60);
    }
    let endless = Parameters { time_based: true, ..Parameters::default() };
    let delete = syncline_lab::bench::find("sqlite/delete").unwrap()[0];
    assert!(delete.limits(&endless).is_err(), "it runs out of rows");
}

struct StopAfter {
    limit: u64,
    done: AtomicU64,
}

impl Observer for StopAfter {
    fn position(&self, done: u64, total: u64) {
        assert_eq!((done, total), (self.done.swap(done, Relaxed) + 1, 100));
    }

    fn stopped(&self) -> bool {
        self.done.load(Relaxed) >= self.limit
    }
}

#[test]
fn an_interrupted_run_reports_what_it_did_and_leaves_a_clean_image() {
    let Some(image) = crate::common::image("an_interrupted_run") else { return };
    for workload in ["sqlite/insert", "create/4k-fsync", "mixed"] {
        let parameters = crate::common::parameters(JournalMode::Delete, Some(100));
        let observer = StopAfter { limit: 7, done: AtomicU64::new(0) };
        let run = on_stack(&MountOptions::default(), image, workload, &parameters, &observer);
        assert!(run.interrupted);
        assert_eq!((run.metrics.operations, run.foreground.operations), (7, 7));
        assert!(run.metrics.transactions_per_s > 0.0);
    }
}

#[test]
fn more_dirty_data_of_others_makes_fsync_dearer() {
    let Some(image) = crate::common::image("more_dirty_data_of_others") else { return };
    let parameters = crate::common::parameters(JournalMode::Delete, Some(100));
    let mixed = crate::common::run(image, "nexus7-emmc", "mixed", &parameters).foreground;
    let alone =
        crate::common::run(image, "nexus7-emmc", "fileio/random-overwrite-fsync", &parameters)
            .foreground;
    let journal = |m: syncline_lab::bench::Metrics| m.device.unwrap().journal_bytes;
    assert!(journal(mixed) > 2 * journal(alone), "ordered commits drag strangers along");
}

/// Small applications in every configuration of the write buffer.
#[test]
fn fjord_repeats_leaves_a_clean_image_and_saves_what_it_should() {
    let test = "fjord_repeats_leaves_a_clean_image_and_saves_what_it_should";
    if !syncline_testkit::require(test, &[syncline_testkit::Need::E2fsck]) {
        return;
    }
    const BYTES: u64 = 128 << 20;
    let source = syncline_lab::bench::ImageSource::New { size_bytes: BYTES };
    let image = Image::load(&source).unwrap();
    let profile = Profile::by_name("emmc-gnote").unwrap();
    for entry in APPLICATIONS {
        // The phases of the benchmark are thirteen whatever is asked for.
        let operations = (entry.name != "fjord/rlbench").then_some(6);
        let parameters = Parameters { scale_percent: 4, operations, ..Parameters::default() };
        let bench = Fjord::new(&profile, &image, &parameters, 32 << 20).unwrap();
        let mut runs: Vec<FjordRun> = Vec::new();
        for config in &FJORD_CONFIGS {
            let stack = bench.stack().unwrap();
            let mount = crate::common::ordered();
            let run = bench.run_on(&stack, entry, config, &mount, &Unobserved).unwrap();
            if config.name.ends_with("both") {
                let again = bench.run(entry, config, &mount, &Unobserved).unwrap();
                assert_eq!(again, run, "{} {}", entry.name, config.name);
            }
            let file = tempfile::NamedTempFile::new().unwrap();
            Arc::clone(&stack.memory).to_file(file.path()).unwrap();
            file.as_file().set_len(BYTES).unwrap();
            e2fsck_clean(file.path())
                .unwrap_or_else(|said| panic!("{} {}: {said}", entry.name, config.name));
            runs.push(run);
        }
        let of = |name: &str| runs.iter().find(|run| run.config == name).unwrap();
        let seconds = |name: &str| of(name).run.metrics.duration_s;
        let written = |name: &str| of(name).run.metrics.device.as_ref().unwrap().written_bytes;
        assert!(seconds("log") < seconds("native"), "{}", entry.name);
        assert!(seconds("relaxed-both") < seconds("log"), "{}", entry.name);
        assert!(written("fsync-control") < written("native"), "{}", entry.name);
        let steady = of("log-steady").buffer.unwrap();
        assert!(steady.logged_pages > 0 && steady.cleaned_pages > 0, "{}: {steady:?}", entry.name);
        assert!(of("native").buffer.is_none() && of("native").run.joules.unwrap() > 0.0);
        let shown = syncline_lab::bench::fjord_table(&runs);
        let rows = shown.lines().filter(|line| line.starts_with(entry.name)).count();
        assert_eq!(rows, FJORD_CONFIGS.len(), "{shown}");
        assert!(shown.contains("paper: informed-storage"), "{shown}");
    }
}

/// A fifth of a day: what waits for a policy does not wait while the battery is low or the user is
/// away, and no policy wakes the device more often than none.
#[test]
fn policies_of_a_day_shorten_the_time_at_risk_and_wake_nothing() {
    let test = "policies_of_a_day_shorten_the_time_at_risk_and_wake_nothing";
    let Some(image) = crate::common::image(test) else { return };
    let profile = Profile::by_name("nexus7-emmc").unwrap();
    let parameters = Parameters { scale_percent: 20, ..Parameters::default() };
    let bench = Fjord::new(&profile, image, &parameters, 32 << 20).unwrap();
    let run = |sync: &str, config: &str, policies: &[&str]| -> DayRun {
        let is = |day: &&syncline_lab::bench::DayConfig| {
            (day.sync, day.stack.name, day.policies) == (sync, config, policies)
        };
        let day = DAY_CONFIGS.iter().find(is).unwrap();
        let options = format!("sync={sync},writeback_preset=android");
        bench.day(day, &MountOptions::parse(&options).unwrap(), &Unobserved).unwrap()
    };
    let both = |policies: &[&str]| run("ordered", "relaxed-both", policies);
    let none = both(&[]);
    assert_eq!(both(&[]), none, "it repeats");
    let at = |day: &DayRun| day.at_risk.unwrap();
    let (power, session, usual) =
        (both(&["power"]), both(&["session"]), both(&["power", "session"]));
    for day in [&power, &usual] {
        assert!(at(day).low_s * 2 < at(&none).low_s, "{:?} {:?}", at(day), at(&none));
    }
    for day in [&session, &usual] {
        assert!(at(day).away_s * 2 < at(&none).away_s, "{:?} {:?}", at(day), at(&none));
    }
    assert!(at(&session).low_s > at(&power).low_s && at(&power).away_s > at(&session).away_s);
    for day in [&power, &session, &usual] {
        assert!(day.run.wakeups <= none.run.wakeups, "{}: {}", day.policies, day.run.wakeups);
    }
    // The strict files of ext4 wait for their syncs, and for nothing afterwards.
    let native = run("ordered", "native", &[]);
    assert!(at(&native).day_s < at(&none).day_s, "{:?} {:?}", at(&native), at(&none));
    assert_eq!(native.run.metrics.operations, none.run.metrics.operations);
    let day_s = none.run.metrics.duration_s;
    assert!((day_s / 17_280.0 - 1.0).abs() < 0.001, "{day_s}");
    let joules = none.run.joules.unwrap();
    assert!(joules > 0.0 && joules < 100.0, "pauses take no energy: {joules}");
    assert!(run("eager", "native", &[]).at_risk.is_none());
}

/// A volume gives up clean pages and writes dirty ones file by file in ascending order, whatever
/// the policy: what reaches the device does not depend on it.
#[test]
fn no_policy_scatters_the_writes_of_a_volume_with_a_small_cache() {
    let Some(image) = crate::common::image("no_policy_scatters_the_writes") else { return };
    let parameters = crate::common::parameters(JournalMode::Delete, Some(120));
    for device in ["nexus7-emmc", "sd-2012"] {
        let run = |policy: &str| {
            let mut mount = crate::common::ordered();
            (mount.policy, mount.cache_bytes) = (policy.parse().unwrap(), 1 << 20);
            crate::common::run_as(&mount, image, device, "mixed", &parameters)
                .metrics
                .device
                .unwrap()
        };
        let clock = run("clock");
        assert!(clock.write_requests > 120, "{clock:?}");
        for policy in ["spatialclock", "spatial-protected", "blockclock", "fab"] {
            assert_eq!(run(policy), clock, "{policy} on {device}");
        }
    }
}
