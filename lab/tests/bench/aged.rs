//! Aged volumes: they are as full as asked, repeat exactly, are sound, and show what allocation
//! does to a device: exact counts of small sizes.

use std::sync::Arc;

use syncline_fs::MountOptions;
use syncline_lab::Unobserved;
use syncline_lab::bench::{
    Aging, Image, ImageSource, Parameters, Run, Simulation, Stack, allocation_table, find,
};
use syncline_nand::Profile;
use syncline_testkit::{Need, e2fsck_clean, require};

/// Maps of 16 MiB, four of them in RAM: 64 KiB, as the profile has with its own maps.
const DEVICE: &str = "nexus7-emmc:mapping=zone,map_segment_kib=16384,map_cache_segments=4";

fn image(size_mib: u64) -> Image {
    Image::load(&ImageSource::ManyFlexGroups { size_bytes: size_mib << 20 }).unwrap()
}

fn stack(image: &Image) -> Stack {
    Stack::new(&Profile::parse_built_in(DEVICE).unwrap(), image.snapshot(), 0).unwrap()
}

fn judge(stack: &Stack, what: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    Arc::clone(&stack.memory).to_file(file.path()).unwrap();
    e2fsck_clean(file.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
}

#[test]
fn a_volume_is_as_full_and_as_old_as_asked() {
    if !require("a_volume_is_as_full_and_as_old_as_asked", &[Need::E2fsck]) {
        return;
    }
    let image = image(128);
    for (list, fill_percent) in
        [("alloc=default", 80), ("alloc=hot_zones", 90), ("alloc=lifetime,sync=ordered", 90)]
    {
        let stack = stack(&image);
        let target = stack.mount(&MountOptions::parse(list).unwrap(), 1).unwrap();
        Aging { fill_percent, seed: 1 }.run(&target).unwrap();
        let stat = target.fs().volume().statfs();
        let used = (stat.blocks - stat.blocks_free) * 100 / stat.blocks;
        let asked = u64::from(fill_percent);
        assert!((asked - 3..=asked + 2).contains(&used), "{list}: {used} % of {fill_percent} %");
        let written = stack.nand.counters().written_bytes;
        assert!(written > 128 << 20, "{list}: {written} bytes");
        target.unmount().unwrap();
        judge(&stack, list);
    }
    for fill_percent in [0, 96] {
        let stack = stack(&image);
        let target = stack.mount(&MountOptions::default(), 1).unwrap();
        let refused = Aging { fill_percent, seed: 1 }.run(&target).unwrap_err().to_string();
        assert!(refused.contains("give 1 to 95"), "{refused}");
    }
}

fn measured(image: &Image, workload: &str, list: &str, operations: u64) -> Run {
    let profile = Profile::parse_built_in(DEVICE).unwrap();
    let mount = MountOptions::parse(list).unwrap();
    let parameters = Parameters {
        operations: Some(operations),
        fill_percent: Some(85),
        ..Parameters::default()
    };
    let simulation =
        Simulation { profile: &profile, image, mount: &mount, parameters: &parameters };
    let stack = stack(image);
    let run = simulation.run_on(&stack, find(workload).unwrap()[0], &Unobserved).unwrap();
    judge(&stack, list);
    run
}

#[test]
fn policies_differ_in_what_the_device_collects_and_repeat_exactly() {
    let test = "policies_differ_in_what_the_device_collects_and_repeat_exactly";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let image = image(256);
    let run =
        |alloc: &str| measured(&image, "android-day", &format!("sync=ordered,alloc={alloc}"), 200);
    let runs = ["default", "hot_zones", "lifetime"].map(run);
    let counts = runs.each_ref().map(|run| {
        let device = run.metrics.device.as_ref().unwrap();
        (device.nand_gc_runs, device.nand_gc_copies)
    });
    println!("{counts:?}");
    // In small the two policies are alike: the region is one zone, or four that are filled in turn.
    for (runs, copies) in &counts[1..] {
        assert!(*runs < counts[0].0 && copies * 100 < counts[0].1 * 85, "{counts:?}");
    }
    assert_eq!(run("lifetime"), runs[2]);
    let labels = runs.each_ref().map(|run| run.config.alloc.as_deref());
    assert_eq!(labels, [None, Some("hot_zones"), Some("lifetime")]);
    let table = allocation_table(&runs);
    assert_eq!(table.lines().filter(|line| line.starts_with("android-day")).count(), 3, "{table}");
}

#[test]
fn zones_that_suit_the_volume_gain_alike_at_two_sizes_in_both_modes() {
    let test = "zones_that_suit_the_volume_gain_alike_at_two_sizes_in_both_modes";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    for size_mib in [512, 2048] {
        let image = image(size_mib);
        for sync in ["ordered", "eager"] {
            let [without, with] = ["default", "hot_zones"].map(|alloc| {
                let run = measured(&image, "mixed", &format!("sync={sync},alloc={alloc}"), 300);
                run.metrics.duration_s
            });
            let gain = without / with;
            println!("{size_mib} MiB, {sync}: {without:.2} s, {with:.2} s with zones, {gain:.2}");
            // 14 to 28 % in the hot-zones paper, figure 3.
            assert!(gain >= 1.14, "{size_mib} MiB, {sync}: {gain}");
        }
    }
}
