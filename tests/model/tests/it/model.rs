//! Random operations on a volume and on the reference file system: every answer is compared, often
//! the whole tree, over remounts and crashes; e2fsck judges the image of each run.
//!
//! Variables
//! - `SYNCLINE_MODEL_OPS`: operations over all runs of `long_run` (default 200,000).
//! - `SYNCLINE_MODEL_SEED`, `SYNCLINE_MODEL_CONFIG`, `SYNCLINE_MODEL_COUNT`: one run again
//!   (`rerun`); a failure prints them.

use std::sync::Arc;
use std::time::Duration;

use syncline_device::MemoryDevice;
use syncline_fs::{LogFormat, MountOptions, SyncMode};
use syncline_model::ops::{ModelOp, OpOptions, gen_ops};
use syncline_model::{
    ImageSpec, ModelConfig, Need, RunStats, TempImage, e2fsck_clean, mkfs, require, run_ops, shrink,
};

const SHRINK_LIMIT: Duration = Duration::from_secs(60);

fn config(
    name: &'static str,
    block_size: u32,
    size_mib: u64,
    change: impl FnOnce(&mut ModelConfig),
) -> ModelConfig {
    let spec = ImageSpec { block_size_bytes: block_size, ..ImageSpec::with_size(size_mib << 20) };
    let mount = MountOptions::default().with(|options| options.cache_bytes = 8 << 20);
    let block_size = u64::from(block_size);
    let ops = OpOptions {
        count: 0,
        block_size,
        reach_bytes: 64 * block_size,
        fill: false,
        xattr_bytes: block_size / 2,
    };
    let mut config = ModelConfig { name, spec, mount, ops };
    change(&mut config);
    config
}

/// A volume with data in its inodes, and writes about as long as an inode.
fn inline(
    name: &'static str,
    block_size: u32,
    inode_size: u32,
    change: impl FnOnce(&mut ModelConfig),
) -> ModelConfig {
    config(name, block_size, 48, |c| {
        c.spec.features = "inline_data".to_owned();
        c.spec.inode_size_bytes = Some(inode_size);
        let unit = u64::from(inode_size / 6);
        (c.ops.block_size, c.ops.reach_bytes, c.ops.xattr_bytes) = (unit, 4 * unit, unit);
        change(c);
    })
}

/// A volume that allocates clusters of `ratio` blocks.
fn clusters(
    name: &'static str,
    (block_size, ratio): (u32, u32),
    mib: u64,
    change: impl FnOnce(&mut ModelConfig),
) -> ModelConfig {
    config(name, block_size, mib, |c| {
        c.spec.features = "bigalloc".to_owned();
        c.spec.cluster_size_bytes = Some(block_size * ratio);
        change(c);
    })
}

/// Every kind of run: block sizes, a cache that evicts all the time, volumes that get full of
/// blocks or of inodes, an orphan file, old formats, lazy times, a log that wraps, data and values
/// in inodes, clusters; with `sync=eager`, some of them with `log=packed`, and some with
/// `sync=ordered`.
fn configs() -> Vec<ModelConfig> {
    let mut all = vec![
        config("4k", 4096, 64, |_| {}),
        config("1k", 1024, 32, |_| {}),
        config("2k", 2048, 48, |c| c.spec.features = "orphan_file".to_owned()),
        config("tiny-cache", 4096, 64, |c| c.mount.cache_bytes = 1 << 17),
        config("full", 1024, 8, |c| {
            (c.ops.fill, c.ops.reach_bytes) = (true, 1 << 20);
        }),
        config("full-4k", 4096, 24, |c| {
            (c.ops.fill, c.ops.reach_bytes) = (true, 4 << 20);
        }),
        config("few-inodes", 4096, 32, |c| c.spec.inode_count = Some(64)),
        config("small-log", 1024, 32, |c| {
            c.spec.journal_size_mib = Some(1);
            c.mount.lazytime = true;
        }),
        config("ordered", 4096, 64, |c| c.mount.sync = SyncMode::Ordered),
        config("small-log-ordered", 1024, 32, |c| {
            c.spec.journal_size_mib = Some(1);
            c.mount.sync = SyncMode::Ordered;
        }),
        config("full-ordered", 1024, 8, |c| {
            (c.ops.fill, c.ops.reach_bytes) = (true, 1 << 20);
            c.mount.sync = SyncMode::Ordered;
        }),
        config("packed", 4096, 64, |c| c.mount.log = LogFormat::Packed),
        config("packed-small-log", 1024, 32, |c| {
            c.spec.journal_size_mib = Some(1);
            (c.mount.lazytime, c.mount.log) = (true, LogFormat::Packed);
        }),
        config("packed-full", 1024, 8, |c| {
            (c.ops.fill, c.ops.reach_bytes) = (true, 1 << 20);
            c.mount.log = LogFormat::Packed;
        }),
        inline("inline", 4096, 256, |_| {}),
        inline("inline-ordered", 1024, 256, |c| c.mount.sync = SyncMode::Ordered),
        inline("inline-packed", 4096, 512, |c| c.mount.log = LogFormat::Packed),
        inline("inline-wide", 1024, 1024, |c| c.spec.features += ",^dir_index,^metadata_csum"),
        config("values", 4096, 64, |c| {
            c.spec.features = "ea_inode,orphan_file".to_owned();
            c.ops.xattr_bytes = 65_537;
        }),
        config("values-ordered", 1024, 48, |c| {
            c.spec.features = "ea_inode,^metadata_csum".to_owned();
            (c.ops.xattr_bytes, c.mount.sync) = (20_000, SyncMode::Ordered);
        }),
        config("values-packed", 1024, 48, |c| {
            c.spec.features = "ea_inode".to_owned();
            (c.ops.xattr_bytes, c.mount.log) = (3000, LogFormat::Packed);
        }),
        config("values-full", 1024, 8, |c| {
            c.spec.features = "ea_inode,inline_data".to_owned();
            (c.ops.fill, c.ops.reach_bytes, c.ops.xattr_bytes) = (true, 1 << 20, 9000);
        }),
        config("inline-full", 1024, 8, |c| {
            c.spec.features = "inline_data".to_owned();
            (c.ops.fill, c.ops.reach_bytes) = (true, 1 << 20);
        }),
        config("plain", 4096, 48, |c| c.spec.features = "^metadata_csum,^64bit".to_owned()),
    ];
    all.extend(in_clusters());
    all
}

/// Those of them in clusters.
fn in_clusters() -> [ModelConfig; 5] {
    [
        clusters("clusters", (4096, 16), 256, |_| {}),
        clusters("clusters-of-two", (1024, 2), 48, |c| c.mount.log = LogFormat::Packed),
        clusters("clusters-ordered", (1024, 16), 64, |c| {
            c.spec.features += ",orphan_file,^metadata_csum";
            c.mount.sync = SyncMode::Ordered;
        }),
        clusters("clusters-full", (1024, 16), 8, |c| {
            c.spec.features += ",inline_data,ea_inode";
            (c.ops.fill, c.ops.reach_bytes, c.ops.xattr_bytes) = (true, 1 << 20, 9000);
        }),
        clusters("clusters-full-ordered", (4096, 8), 24, |c| {
            (c.ops.fill, c.ops.reach_bytes) = (true, 4 << 20);
            c.mount.sync = SyncMode::Ordered;
        }),
    ]
}

fn rerun_command(config: &ModelConfig, seed: u64) -> String {
    format!(
        "SYNCLINE_MODEL_CONFIG={} SYNCLINE_MODEL_SEED={seed} SYNCLINE_MODEL_COUNT={} \
         cargo test -p syncline-model --test it model::rerun -- --ignored --nocapture",
        config.name, config.ops.count
    )
}

fn judge(device: &MemoryDevice) -> Result<(), String> {
    let image = TempImage::zeroed(0);
    device.to_file(image.path()).map_err(|e| e.to_string())?;
    e2fsck_clean(image.path())
}

fn one_run(base: &MemoryDevice, config: &ModelConfig, ops: &[ModelOp]) -> Result<RunStats, String> {
    let device = Arc::new(base.snapshot());
    let stats = run_ops(&device, &config.mount, ops).map_err(|mismatch| {
        let op = ops.get(mismatch.at);
        format!("operation {} {op:?}: {}", mismatch.at, mismatch.message)
    })?;
    judge(&device)?;
    Ok(stats)
}

/// Runs a seed; on failure panics with the shrunk list and the command.
fn run_seed(base: &MemoryDevice, config: &ModelConfig, seed: u64) -> RunStats {
    let ops = gen_ops(seed, config.ops);
    let failure = match one_run(base, config, &ops) {
        Ok(stats) => return stats,
        Err(failure) => failure,
    };
    eprintln!("{failure}\nshrinking; {}", rerun_command(config, seed));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let short = shrink(&ops, SHRINK_LIMIT, |ops| one_run(base, config, ops).is_err());
    std::panic::set_hook(hook);
    let again = one_run(base, config, &short).err().unwrap_or_default();
    let list: Vec<String> = short.iter().map(|op| format!("    {op:?}")).collect();
    panic!(
        "config {}, seed {seed}: {failure}\nshrunk to {} operations: {again}\n{}\nrerun: {}",
        config.name,
        short.len(),
        list.join("\n"),
        rerun_command(config, seed)
    );
}

fn base_of(config: &ModelConfig) -> MemoryDevice {
    MemoryDevice::load(mkfs(&config.spec).path()).expect("mkfs made it")
}

fn total(sum: &mut RunStats, run: RunStats) {
    sum.ops += run.ops;
    sum.refused += run.refused;
    sum.no_space += run.no_space;
    sum.remounts += run.remounts;
    sum.compares += run.compares;
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.trim().parse().ok()
}

#[test]
fn random_operations_agree_with_the_reference() {
    if !require("random_operations_agree_with_the_reference", &[Need::E2fsck]) {
        return;
    }
    let mut sum = RunStats::default();
    for mut config in configs() {
        config.ops.count = 3000;
        let base = base_of(&config);
        for seed in [1, 2] {
            let run = run_seed(&base, &config, seed);
            let has_room = config.name.starts_with("values") && !config.ops.fill;
            assert!(!has_room || run.no_space == 0, "{}: values have room", config.name);
            total(&mut sum, run);
        }
    }
    println!("{sum:?}");
    assert!(sum.ops >= 50_000 && sum.no_space > 50 && sum.remounts > 50 && sum.refused > 5000);
}

#[test]
#[ignore = "long: cargo xtask run model-long"]
fn long_run() {
    if !require("long_run", &[Need::E2fsck]) {
        return;
    }
    let wanted = number("SYNCLINE_MODEL_OPS").unwrap_or(200_000);
    let mut sum = RunStats::default();
    let mut seed = number("SYNCLINE_MODEL_SEED").unwrap_or(1000);
    while sum.ops < wanted {
        for mut config in configs() {
            config.ops.count = 5000;
            total(&mut sum, run_seed(&base_of(&config), &config, seed));
        }
        seed += 1;
    }
    println!("seeds up to {seed}: {sum:?}");
}

#[test]
#[ignore = "reruns a failure: SYNCLINE_MODEL_CONFIG, SYNCLINE_MODEL_SEED, SYNCLINE_MODEL_COUNT"]
fn rerun() {
    if !require("rerun", &[Need::E2fsck]) {
        return;
    }
    let name = std::env::var("SYNCLINE_MODEL_CONFIG").unwrap_or_else(|_| "4k".to_owned());
    let mut config = configs().into_iter().find(|c| c.name == name).expect("a known config");
    config.ops.count = number("SYNCLINE_MODEL_COUNT").unwrap_or(3000) as usize;
    let stats = run_seed(&base_of(&config), &config, number("SYNCLINE_MODEL_SEED").unwrap_or(1));
    println!("{stats:?}");
}

/// The canary: an answer that is wrong in one byte is seen.
#[test]
fn a_wrong_reference_is_noticed() {
    if !require("a_wrong_reference_is_noticed", &[Need::E2fsck]) {
        return;
    }
    let config = config("4k", 4096, 16, |_| {});
    let base = base_of(&config);
    let device = Arc::new(base.snapshot());
    let path = || "a".to_owned();
    let make = [
        ModelOp::Create { path: path(), mode: 0o644 },
        ModelOp::Append { target: syncline_model::ops::Target::Path(path()), len: 5000, seed: 1 },
    ];
    run_ops(&device, &config.mount, &make).expect("two plain operations");
    // The image now has a file that a new reference does not know.
    let seen = run_ops(&device, &config.mount, &[ModelOp::Compare]).unwrap_err();
    assert!(seen.message.contains("too many"), "{seen:?}");
}
