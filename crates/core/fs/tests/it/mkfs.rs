//! New file systems: byte for byte those of stock mke2fs, and judged by e2fsck and the kernel.

use std::fmt::Write as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use syncline_device::{
    BlockDevice, FailingDevice, FaultPlan, FileDevice, FileOptions, Kind, MemoryDevice, OpClass,
    Origin, VirtualClock,
};
use syncline_fs::mkfs::{Amount, FsType, Options, Plan, parse_uuid};
use syncline_fs::{MountOptions, Volume};
use syncline_ondisk::Superblock;
use syncline_testkit::{FuzzRounds, KernelMount, Need, Random, e2fsck_clean, require};

const UUID: &str = "5c1e1f5e-0000-4000-8000-000000000001";
const SEED: &str = "5c1e1f5e-0000-4000-8000-000000000002";
const TIME_S: u64 = 1_700_000_000;

/// Options from arguments of mke2fs.
fn options(args: &[String]) -> Options {
    let mut options = Options {
        uuid: parse_uuid(UUID).unwrap(),
        hash_seed: parse_uuid(SEED).unwrap(),
        time_s: TIME_S,
        zeroed: true,
        ..Options::default()
    };
    for pair in args.chunks(2) {
        let value = pair[1].as_str();
        match pair[0].as_str() {
            "-t" => options.fs_type = if value == "ext3" { FsType::Ext3 } else { FsType::Ext2 },
            "-T" => options.usage = Some(value.to_owned()),
            "-O" => options.features = value.to_owned(),
            "-E" => options.set_extended(value).unwrap(),
            "-J" => options.set_journal(value).unwrap(),
            "-b" => options.block_bytes = value.parse().ok(),
            "-N" => options.inodes = value.parse().ok(),
            "-i" => options.bytes_per_inode = value.parse().ok(),
            "-I" => options.inode_bytes = value.parse().ok(),
            "-m" => options.reserved_percent = value.parse().unwrap(),
            "-g" => options.blocks_per_group = value.parse().ok(),
            "-G" => options.flex_groups = value.parse().ok(),
            "-L" => options.label = value.into(),
            "-M" => options.last_mounted = value.into(),
            other => panic!("{other}"),
        }
    }
    if !options.discard && !args.iter().any(|arg| arg.contains("assume_storage_prezeroed")) {
        options.zeroed = false;
    }
    options
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Makes the file with mke2fs. `None`: it refuses.
fn stock(path: &Path, size: u64, args: &[String]) -> Option<String> {
    std::fs::File::create(path).unwrap().set_len(size).unwrap();
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-U", UUID]);
    if !args.iter().any(|arg| arg == "-t") {
        command.args(["-t", "ext4"]);
    }
    let mut extended = format!("hash_seed={SEED}");
    for pair in args.chunks(2) {
        if pair[0] == "-E" {
            write!(extended, ",{}", pair[1]).unwrap();
        } else {
            command.args(pair);
        }
    }
    command.args(["-E", &extended]).env("E2FSPROGS_FAKE_TIME", TIME_S.to_string());
    let ran = command.env("MKE2FS_CONFIG", "/etc/mke2fs.conf").arg(path).output().unwrap();
    ran.status.success().then(|| String::from_utf8_lossy(&ran.stderr).into_owned())
}

/// Makes the file with our own. `Err` holds the refusal.
fn own(path: &Path, size: u64, args: &[String]) -> Result<Superblock, String> {
    std::fs::File::create(path).unwrap().set_len(size).unwrap();
    let plan = Plan::new(&options(args), size).map_err(|err| err.to_string())?;
    let device = FileDevice::open(path, FileOptions::default()).unwrap();
    let sb = plan.superblock().clone();
    plan.write(&device).map_err(|err| err.to_string())?;
    Ok(sb)
}

/// The first places in which two files differ, with holes skipped.
fn differences(one: &Path, two: &Path) -> Vec<String> {
    let (one, two) = (std::fs::File::open(one).unwrap(), std::fs::File::open(two).unwrap());
    let len = one.metadata().unwrap().len();
    let mut found = Vec::new();
    if two.metadata().unwrap().len() != len {
        found.push("the lengths differ".to_owned());
    }
    let mut at = 0;
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    while let Some(from) = next_data(&one, at, len).min(next_data(&two, at, len)) {
        let part = (1 << 20).min((len - from) as usize);
        one.read_exact_at(&mut left[..part], from).unwrap();
        two.read_exact_at(&mut right[..part], from).unwrap();
        if left[..part] != right[..part] {
            for i in (0..part).filter(|i| left[*i] != right[*i]).take(12) {
                let place = from + i as u64;
                found.push(format!("{place:#x}: {:02x} {:02x}", left[i], right[i]));
            }
            return found;
        }
        at = from + part as u64;
    }
    found
}

/// Where the next data of a sparse file begins.
fn next_data(file: &std::fs::File, at: u64, len: u64) -> Option<u64> {
    if at >= len {
        return None;
    }
    rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)).ok().map(|found| found.max(at))
}

fn compare(size: u64, args: &[String]) -> Result<bool, String> {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (one, two) = (dir.path().join("stock"), dir.path().join("own"));
    let said = stock(&one, size, args);
    let ours = own(&two, size, args);
    match (said, ours) {
        (None, Err(_)) => Ok(false),
        // mke2fs makes 8 inodes and has none for lost+found (a listed difference).
        (None, Ok(sb)) if sb.s_inodes_count == 16 => Ok(false),
        (None, Ok(_)) => Err(format!("{size} {args:?}: mke2fs refuses")),
        // mke2fs makes trees of three levels (a listed difference).
        (Some(_), Err(err)) if err.contains("too many pieces") => Ok(false),
        (Some(_), Err(err)) => Err(format!("{size} {args:?}: {err}")),
        (Some(_), Ok(_)) => {
            let found = differences(&one, &two);
            if found.is_empty() {
                return Ok(true);
            }
            if let Ok(keep) = std::env::var("SYNCLINE_KEEP") {
                std::fs::copy(&one, format!("{keep}/stock.img")).unwrap();
                std::fs::copy(&two, format!("{keep}/own.img")).unwrap();
            }
            Err(format!("{size} {args:?}: {}", found.join("\n")))
        }
    }
}

#[test]
fn defaults_are_the_bytes_of_mke2fs() {
    let mut bad = Vec::new();
    for size in [
        64 << 10,
        100 << 10,
        200 << 10,
        1 << 20,
        2 << 20,
        3 << 20,
        5 << 20,
        8 << 20,
        9 << 20,
        17 << 20,
        33 << 20,
        64 << 20,
        100 << 20,
        128 << 20,
        257 << 20,
        511 << 20,
        512 << 20,
        1 << 30,
        3 << 30,
        8 << 30,
        20 << 30,
        200 << 30,
        1 << 40,
    ] {
        for args in ["", "-b 1024", "-b 2048", "-b 4096"] {
            if let Err(err) = compare(size, &words(args)) {
                bad.push(err);
            }
        }
    }
    assert!(bad.is_empty(), "{} of them\n{}", bad.len(), bad.join("\n"));
}

/// Arguments that mke2fs and our own take.
fn arguments() -> impl Strategy<Value = (u64, Vec<String>)> {
    let one = |flag: &'static str, values: &'static [&'static str], weight: u32| {
        let some =
            prop::sample::select(values).prop_map(move |v| vec![flag.to_owned(), v.to_owned()]);
        prop_oneof![10 => Just(Vec::new()), weight => some]
    };
    let size = prop_oneof![
        3 => 64_u64 << 10..8 << 20,
        3 => 8_u64 << 20..600 << 20,
        3 => 600_u64 << 20..6 << 30,
        1 => 6_u64 << 30..100 << 30,
    ];
    let features = prop::sample::select(FEATURES);
    let features = prop::collection::vec(features, 0..4).prop_map(|names| {
        if names.is_empty() { Vec::new() } else { vec!["-O".to_owned(), names.join(",")] }
    });
    let extended = prop::sample::select(EXTENDED);
    let extended = prop::collection::vec(extended, 0..3).prop_map(|names| {
        if names.is_empty() { Vec::new() } else { vec!["-E".to_owned(), names.join(",")] }
    });
    let shape = (
        one("-b", &["1024", "2048", "4096", "8192", "16384", "65536"], 20),
        one("-I", &["128", "256", "512", "1024"], 4),
        one("-N", &["1", "11", "12", "1000", "20000", "100000"], 4),
        one("-i", &["1024", "4096", "65536", "1048576"], 4),
        one("-g", &["256", "1024", "4096", "8192", "8184"], 4),
        one("-G", &["1", "2", "8", "64", "512"], 4),
    );
    let rest = (
        one("-m", &["0", "1", "2.5", "50"], 4),
        one("-J", &["size=1", "size=4", "size=17", "size=64", "size=2000"], 4),
        one("-T", &["small", "largefile", "largefile4", "news", "floppy", "big", "default"], 4),
        one("-L", &["root", "0123456789abcdef"], 2),
        one("-M", &["/mnt/somewhere"], 2),
        one("-t", &["ext2", "ext3"], 2),
    );
    (size, shape, rest, features, extended).prop_map(|(size, shape, rest, features, extended)| {
        let (b, inode, n, i, g, flex) = shape;
        let (m, j, usage, label, mounted, kind) = rest;
        let all = [b, inode, n, i, g, flex, m, j, usage, label, mounted, kind, features, extended];
        let args = all.concat();
        // mke2fs counts packed tables twice if groups are not flexible (a listed difference).
        let single = args.windows(2).any(|pair| pair == ["-G", "1"]);
        let args: Vec<_> = args
            .into_iter()
            .map(|arg| if single { arg.replace("packed_meta_blocks=1", "stride=1") } else { arg })
            .collect();
        // Zeros, or descriptors in each group, take memory here.
        let large = |arg: &String| arg.contains("nodiscard") || arg.contains("^sparse_super");
        let most = if args.iter().any(large) { 1 << 30 } else { size };
        (size.min(most), args)
    })
}

const FEATURES: &[&str] = &[
    "^has_journal",
    "^resize_inode",
    "^dir_index",
    "^filetype",
    "^64bit",
    "^flex_bg",
    "^metadata_csum",
    "^metadata_csum,uninit_bg",
    "^sparse_super,^resize_inode",
    "sparse_super2",
    "metadata_csum_seed",
    "orphan_file",
    "large_dir",
    "ea_inode",
    "project",
    "meta_bg,^resize_inode",
    "^huge_file",
    "^dir_nlink",
    "^extra_isize",
    "^large_file",
    "fast_commit",
    "stable_inodes",
    "casefold",
    "^ext_attr",
    "^extent,^64bit",
    "^has_journal,^resize_inode",
];
const EXTENDED: &[&str] = &[
    "stride=16",
    "stride=128,stripe_width=512",
    "nodiscard",
    "nodiscard,lazy_itable_init=0",
    "lazy_journal_init=1",
    "packed_meta_blocks=1",
    "num_backup_sb=1",
    "num_backup_sb=0",
    "root_owner=1000:70000",
    "orphan_file_size=3",
    "orphan_file_size=2M",
    "resize=1T",
    "assume_storage_prezeroed=1",
    "encoding=utf8",
    "encoding_flags=nostrict-strict,encoding=utf8-12.1",
    "encoding_flags=strict",
];

#[test]
fn random_options_are_the_bytes_of_mke2fs() {
    let cases = std::env::var("SYNCLINE_CASES").map_or(60, |n| n.parse().unwrap());
    let mut bad = Vec::new();
    let mut count = [0; 2];
    let mut runner = TestRunner::new(Config { cases, ..Config::default() });
    for _ in 0..cases {
        let (size, args) = arguments().new_tree(&mut runner).unwrap().current();
        let compared = std::panic::catch_unwind(|| compare(size, &args));
        match compared.unwrap_or_else(|_| Err(format!("{size} {args:?} panics"))) {
            Ok(made) => count[usize::from(made)] += 1,
            Err(err) => bad.push(err),
        }
    }
    assert!(bad.is_empty(), "{count:?} {} of them\n{}", bad.len(), bad.join("\n"));
}

/// Options beyond what mke2fs is compared on, or that the kernel has to judge, too.
const JUDGED: &[(u64, &str)] = &[
    (64 << 10, ""),
    (64 << 10, "-b 1024 -N 16 -O ^resize_inode"),
    (100 << 10, "-t ext2"),
    (4 << 20, "-b 65536"),
    (40 << 20, "-b 1024 -O inline_data,ea_inode,large_dir"),
    (40 << 20, "-b 2048 -O ^metadata_csum,^64bit,uninit_bg"),
    (40 << 20, "-O metadata_csum_seed,orphan_file,sparse_super2 -I 512"),
    (80 << 20, "-b 4096 -O ^flex_bg,^resize_inode,meta_bg -E stride=16"),
    (80 << 20, "-t ext3 -b 1024 -J size=16"),
    (80 << 20, "-O ^extent,^64bit,orphan_file"),
    (80 << 20, "-O inline_data -E packed_meta_blocks=1 -G 1"),
    (200 << 20, "-b 8192 -O orphan_file,project"),
    (600 << 20, "-b 65536 -J size=128 -O fast_commit"),
    (1 << 30, "-g 256 -E lazy_itable_init=0,nodiscard"),
    (1 << 30, "-O ^has_journal,stable_inodes -m 0 -N 7"),
    (2 << 40, "-T largefile4 -E resize=16T"),
    (20 << 40, "-T huge"),
    (17 << 40, "-b 65536"),
];

#[test]
fn options_pass_e2fsck_and_the_kernel() {
    let test = "options_pass_e2fsck_and_the_kernel";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let mounts = require(test, &[Need::Root, Need::Loop]);
    for (size, args) in JUDGED {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("image");
        let sb = own(&path, *size, &words(args)).unwrap_or_else(|err| panic!("{args}: {err}"));
        e2fsck_clean(&path).unwrap_or_else(|err| panic!("{size} {args}: {err}"));
        if mounts && sb.s_log_block_size <= 2 {
            let mount = KernelMount::new(&path, "").unwrap_or_else(|err| panic!("{args}: {err}"));
            std::fs::write(mount.path().join("file"), vec![7; 10_000]).unwrap();
            assert!(mount.path().join("lost+found").is_dir());
            mount.unmount().unwrap();
            // Of terabytes e2fsck takes most of the time of the test, and the mount changed little.
            if *size <= 1 << 40 {
                e2fsck_clean(&path).unwrap_or_else(|err| panic!("{args}, mounted: {err}"));
            }
        }
    }
}

#[test]
fn the_volume_takes_what_it_makes() {
    for (size, args) in [(8 << 20, ""), (600 << 20, "-b 65536"), (40 << 20, "-t ext3")] {
        let device = std::sync::Arc::new(MemoryDevice::new(size));
        Plan::new(&options(&words(args)), size).unwrap().write(&*device).unwrap();
        let clock = std::sync::Arc::new(VirtualClock::new(TIME_S * 1_000_000_000));
        let vol = Volume::mount(device, clock, MountOptions::default()).unwrap();
        let report = vol.check(&mut |_| true).unwrap();
        assert!(report.is_clean(), "{args}: {:?}", report.findings);
        vol.unmount().unwrap();
    }
}

/// Every byte that counts is written where the device holds other bytes.
#[test]
fn old_bytes_of_a_device_do_no_harm() {
    if !require("old_bytes_of_a_device_do_no_harm", &[Need::E2fsck]) {
        return;
    }
    for args in ["", "-E lazy_itable_init=0 -O orphan_file", "-t ext3", "-g 1024 -O ^flex_bg"] {
        let size = 24 << 20;
        let device = MemoryDevice::new(size).with_geometry(|geometry| geometry.discard = false);
        device.write_at(0, &vec![0xa5; size as usize]).unwrap();
        let options = Options { zeroed: false, ..options(&words(args)) };
        Plan::new(&options, size).unwrap().write(&device).unwrap();
        let mut bytes = vec![0; size as usize];
        device.read_at(0, &mut bytes).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, &bytes).unwrap();
        e2fsck_clean(&path).unwrap_or_else(|err| panic!("{args}: {err}"));
    }
}

#[test]
fn a_failed_request_leaves_no_file_system() {
    let size = 8 << 20;
    let old = MemoryDevice::new(size);
    Plan::new(&options(&[]), size).unwrap().write(&old).unwrap();
    let newer = Options { uuid: [9; 16], zeroed: false, ..options(&[]) };
    let mut failures = 0;
    loop {
        let device = old.snapshot();
        let failing = FailingDevice::new(&device);
        failing.arm(FaultPlan::once(OpClass::Any, failures + 1));
        let made = Plan::new(&newer, size).unwrap().write(&failing);
        let mut bytes = [0; 1024];
        device.read(1024, &mut bytes, Origin::new(Kind::Metadata, true)).unwrap();
        match (made, Superblock::decode(&bytes)) {
            (Ok(()), sb) => assert_eq!(sb.unwrap().s_uuid, [9; 16]),
            (Err(_), sb) => assert!(sb.is_err(), "{failures}"),
        }
        if failing.hits() == 0 {
            break;
        }
        failures += 1;
    }
    assert!(failures > 5);
}

#[test]
fn options_out_of_range_are_refused_with_a_reason() {
    for (size, args, word) in [
        (32 << 10, "", "too small"),
        (8 << 20, "-b 3000", "block size 3000"),
        (8 << 20, "-b 512", "block size 512"),
        (8 << 20, "-I 100", "inode size 100"),
        (8 << 20, "-b 1024 -I 2048", "inode size 2048"),
        (8 << 20, "-I 128 -O inline_data", "inline_data"),
        (8 << 20, "-N 100000", "fill the device"),
        (8 << 20, "-N 5000000000", "2^32"),
        (8 << 20, "-i 100", "bytes per inode"),
        (8 << 20, "-m 51", "reserved"),
        (8 << 20, "-g 100", "blocks per group"),
        (8 << 20, "-g 65544", "blocks per group"),
        (8 << 20, "-G 3", "power of two"),
        (8 << 20, "-G 4 -O ^flex_bg", "flex_bg"),
        (8 << 20, "-J size=16", "half"),
        (64 << 20, "-b 4096 -J size=1", "journal of 256 blocks"),
        (64 << 20, "-O ^extent", "64bit"),
        (64 << 20, "-O meta_bg", "resize_inode"),
        (64 << 20, "-O ^sparse_super", "sparse_super"),
        (64 << 20, "-O ^has_journal,orphan_file", "orphan_file"),
        (64 << 20, "-O ^metadata_csum,metadata_csum_seed", "metadata_csum_seed"),
        (64 << 20, "-E resize=1M", "resize"),
        (64 << 20, "-E desc_size=100", "desc_size"),
        (64 << 20, "-E orphan_file_size=1G -O orphan_file", "orphan_file_size"),
        (64 << 20, "-E encoding_flags=strict", "encoding"),
        (64 << 20, "-T tiny", "tiny"),
        (64 << 20, "-L 0123456789abcdefg", "label"),
        (17 << 40, "-O ^64bit", "64bit"),
    ] {
        let err = Plan::new(&options(&words(args)), size).unwrap_err();
        assert_eq!(err.errno(), 22, "{args}: {err}");
        assert!(err.to_string().contains(word), "{args}: {err}");
    }
}

/// No options panic, however odd they are.
#[test]
fn odd_options_are_made_or_refused() {
    let mut random = Random::new(7);
    let mut made = 0;
    for _ in FuzzRounds::at_least(3000) {
        let size = match random.below(4) {
            0 => random.below(1 << 20),
            1 => random.below(1 << 30),
            2 => random.below(1 << 42),
            _ => u64::MAX - random.below(1 << 20),
        };
        let mut odd = Options::default();
        let mut number = || {
            let shift = random.below(64);
            random.bits() >> shift
        };
        let choice = number();
        let small = |n: u64| u32::try_from(n % (1 << 20)).unwrap();
        odd.block_bytes = (choice & 1 > 0).then(|| 1024 << (number() % 8));
        odd.inode_bytes = (choice & 2 > 0).then(|| 64 << (number() % 12));
        odd.inodes = (choice & 4 > 0).then(&mut number);
        odd.bytes_per_inode = (choice & 8 > 0).then(|| small(number()));
        odd.blocks_per_group = (choice & 16 > 0).then(|| small(number()) & !7);
        odd.flex_groups = (choice & 32 > 0).then(|| 1 << (number() % 32));
        odd.journal_mib = (choice & 64 > 0).then(|| small(number()));
        odd.resize = (choice & 128 > 0).then(|| Amount::Blocks(number()));
        odd.orphan_file = (choice & 256 > 0).then(|| Amount::Bytes(number()));
        odd.journal_location = (choice & 512 > 0).then(|| Amount::Blocks(number()));
        odd.desc_bytes = (choice & 1024 > 0).then(|| 32 << (number() % 8));
        odd.stride = (number() & 0xffff) as u16;
        odd.time_s = number();
        odd.packed_meta_blocks = choice & 2048 > 0;
        let lists = [FEATURES[(number() % 20) as usize], FEATURES[(number() % 20) as usize]];
        odd.features = lists.join(",");
        made += u32::from(Plan::new(&odd, size).is_ok());
    }
    assert!(made > 100, "{made}");
}
