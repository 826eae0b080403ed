//! `cache` and `replay`, through the binary.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support;
use crate::support::{done, file, refused, run, scratch};
use serde_json::Value;
use syncline_testkit::{ImageSpec, LoopDevice, Need, mkfs, require};

/// 3000 accesses of a few databases and of files in order, as a CSV of the UMass kind.
fn trace(dir: &Path) -> OsString {
    let (mut text, mut state, mut next) = (String::new(), 7u64, 100_000u64);
    for n in 0..3000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n);
        let draw = state >> 33;
        let page = match draw % 4 {
            0 => {
                next += 1;
                next
            }
            _ => draw / 4 % 12 * 2048 + draw / 64 % 40,
        };
        let op = if draw % 3 == 0 { 'R' } else { 'W' };
        text += &format!("0,{},4096,{op},{}.{:03}\n", page * 8, n / 1000, n % 1000);
    }
    file(dir, "disk.csv", &text).into()
}

fn words(list: &[&str]) -> Vec<OsString> {
    list.iter().map(OsString::from).collect()
}

fn with(list: &[&str], more: &[(&str, &OsString)]) -> Vec<OsString> {
    let mut all = words(list);
    for (option, value) in more {
        let mut both = OsString::from(option);
        both.push("=");
        both.push(value);
        all.push(both);
    }
    all
}

#[test]
fn policies_are_compared_and_the_trace_after_the_cache_is_theirs() {
    let dir = scratch();
    let trace = trace(dir.path());
    let [after, csv, html] =
        ["after", "f.csv", "f.html"].map(|name| dir.path().join(name).into_os_string());
    let base = ["cache", "--policy=lru,spatialclock,min", "--size=64p,1M", "--json=-"];
    let device = [("--device", &OsString::from("sd-2012"))];
    let files = [("--after-cache", &after), ("--csv", &csv), ("--html", &html)];
    let input = [("--trace", &trace)];
    let text = done(&with(&base, &[&input[..], &device, &files].concat()));
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["schema"], "syncline.cache/1");
    assert_eq!(value["trace"]["accesses"], 3000);
    let runs = value["runs"].as_array().unwrap();
    let names: Vec<_> =
        runs.iter().map(|run| (run["policy"].as_str().unwrap(), &run["pages"])).collect();
    assert_eq!(names[0], ("lru", &64.into()));
    assert_eq!(names[5], ("min", &256.into()));
    for run in runs {
        let policy = run["policy"].as_str().unwrap();
        assert_eq!(run["hits"].as_u64().unwrap() + run["misses"].as_u64().unwrap(), 3000);
        // Steps 1 to 3 at once are steps 1, 2 and 3.
        let path = Path::new(&after).join(format!("{policy}-{}.trace", run["pages"]));
        let again = done(&with(
            &["replay", "--device=sd-2012", "--json=-"],
            &[("--trace", &path.into_os_string())],
        ));
        let again: Value = serde_json::from_str(&again).unwrap();
        assert_eq!(again["schema"], "syncline.replay/1");
        assert_eq!(again["writes"], run["writes"], "{policy}");
        assert_eq!(again["reads"], run["reads"], "{policy}");
        assert_eq!(again["elapsed_s"], run["devices"][0]["elapsed_s"], "{policy}");
    }
    let hits = |n: usize| runs[n]["hits"].as_u64().unwrap();
    assert!(hits(2) > hits(0) && hits(3) > hits(0), "the bound is above, more room helps");
    let csv = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(csv.lines().count(), 7);
    assert!(
        csv.starts_with("policy,pages,hits,") && csv.contains("\"sd-2012 elapsed_s\""),
        "{csv}"
    );
    let html = std::fs::read_to_string(&html).unwrap();
    assert_eq!(html.matches("<figure").count(), 4, "hits, cost, runs, elapsed");
    // One thread gives the same as several.
    let one = done(&with(&base, &[&input[..], &device, &[("--jobs", &"1".into())]].concat()));
    assert_eq!(text, one);
    let table = done(&with(&["cache", "--size=5%"], &input));
    assert!(table.starts_with("block trace of spc: 3000 page accesses"), "{table}");
    // After a line of the trace, an empty one and the heading: every policy.
    let policies: Vec<_> = table.lines().skip(3).collect();
    let [first, .., last] = &policies[..] else { panic!("{table}") };
    assert!(first.starts_with("clock ") && last.starts_with("min "), "{table}");
    assert!(policies.len() >= 12, "{table}");
    let left: Vec<_> = std::fs::read_dir(&after).unwrap().collect();
    assert_eq!(left.len(), 6, "no temporary file is left: {left:?}");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let dir = scratch();
    let trace = trace(dir.path());
    let input = [("--trace", &trace)];
    let cases: [(&[&str], &str); 7] = [
        (&["cache", "--policy=fifo"], "clock, lru"),
        (&["cache", "--size=0"], "16M"),
        (&["cache", "--device=none"], "syncline-lab devices"),
        (&["replay", "--device=none"], "syncline-lab devices"),
        (&["replay", "--dir=."], "--device"),
        (&["replay", "--device=/none/x.toml"], "syncline-lab devices"),
        (&["cache", "--format=nonsense"], "nonsense"),
    ];
    for (args, part) in cases {
        let err = refused(2, &with(args, &input));
        assert!(err.contains(part), "{args:?}: {err}");
    }
    let empty = file(dir.path(), "empty.csv", "0,8,0,W,0.5\n").into_os_string();
    let err = refused(2, &with(&["cache"], &[("--trace", &empty)]));
    assert!(err.contains("reads and writes nothing"), "{err}");
    let far = file(dir.path(), "far.csv", "0,9000000000000000,4096,W,0.5\n0,0,512,W,1\n");
    let far = far.into_os_string();
    let err = refused(2, &with(&["replay", "--device=sd-2012"], &[("--trace", &far)]));
    assert!(err.contains("--dense"), "{err}");
    let said = done(&with(&["replay", "--device=sd-2012", "--dense"], &[("--trace", &far)]));
    assert!(said.contains("writes") && said.contains("2, "), "{said}");
}

#[test]
fn what_is_there_is_not_overwritten_unless_told_and_told_again() {
    let dir = scratch();
    let text: String = (0..50).map(|n| format!("0,{},4096,W,{n}\n", n * 8)).collect();
    let trace = file(dir.path(), "w.csv", &text).into_os_string();
    let reads = file(dir.path(), "r.csv", &text.replace('W', "R")).into_os_string();
    let disk = dir.path().join("disk");
    let mut bytes = vec![0u8; 1 << 20];
    bytes[1080..1082].copy_from_slice(&[0x53, 0xEF]);
    std::fs::write(&disk, &bytes).unwrap();
    let disk = disk.into_os_string();
    let play = |more: &[&str], trace: &OsString| {
        let base = [&["replay"], more].concat();
        with(&base, &[("--trace", trace), ("--device", &disk)])
    };
    let said = done(&play(&[], &reads));
    assert!(said.contains("real time") && said.contains("50, 0.2 MB"), "{said}");
    let err = refused(2, &play(&[], &trace));
    assert!(err.contains("with --overwrite"), "{err}");
    let err = refused(1, &play(&["--overwrite"], &trace));
    assert!(err.contains("ext4") && err.contains("add --yes"), "{err}");
    assert_eq!(run(&play(&["--yes"], &trace)).code, 2, "not without the other");
    assert_eq!(std::fs::read(&disk).unwrap(), bytes, "nothing was written");
    let said = done(&play(&["--overwrite", "--yes", "--depth=4"], &trace));
    assert!(said.contains("write p50"), "{said}");
    let after = std::fs::read(&disk).unwrap();
    assert_ne!(after[..1024], bytes[..1024]);
    assert_eq!(after[50 * 4096..], bytes[50 * 4096..], "nothing beyond the trace");
    // Nothing is known of it now: told once is enough.
    done(&play(&["--overwrite", "--timing", "--json=-", "--depth=2"], &short(dir.path())));
    let beyond = file(dir.path(), "b.csv", "0,4096,4096,W,0\n").into_os_string();
    let err = refused(2, &play(&["--overwrite"], &beyond));
    assert!(err.contains("--dense"), "{err}");
}

/// Two writes 30 ms apart.
fn short(dir: &Path) -> OsString {
    file(dir, "s.csv", "0,8,4096,W,0.00\n0,16,4096,W,0.03\n").into()
}

#[test]
fn system_calls_play_in_a_directory() {
    let dir = scratch();
    let at = |n: u64| format!("10 1700000000.{n:06}");
    let mut text = at(0);
    text += " openat(AT_FDCWD</x>, \"a\", O_RDWR|O_CREAT, 0644) = 3</x/a> <0.000010>\n";
    for n in 0..20 {
        let (write, sync) = (at(n * 1000 + 100), at(n * 1000 + 500));
        let offset = n * 5000;
        text += &format!(
            "{write} pwrite64(3</x/a>, \"\\0\"..., 5000, {offset}) = 5000 <0.000010>\n\
             {sync} fsync(3</x/a>) = 0 <0.000100>\n"
        );
    }
    let trace = file(dir.path(), "app.strace", &text).into_os_string();
    let place = dir.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let place = place.into_os_string();
    let input = [("--trace", &trace), ("--dir", &place)];
    let json = done(&with(&["replay", "--json=-"], &input));
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&value["written_bytes"], &value["sync_calls"]), (&100_000.into(), &20.into()));
    assert_eq!(value["left_out"], 0);
    assert!(done(&with(&["replay"], &input)).contains("of 1 threads"));
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "nothing is left");
    // A device wants block requests; their cache makes them.
    let err = refused(2, &with(&["replay", "--device=sd-2012"], &input[..1]));
    assert!(err.contains("--after-cache"), "{err}");
    let table = done(&with(&["cache", "--fsync", "--policy=lru", "--size=1M"], &input[..1]));
    assert!(table.contains("flushes"), "{table}");
}

/// A loop device with a file system: refused while it is mounted, while somebody else holds it, and
/// for what is on it; its image, too. Told twice, it is played on.
#[test]
fn a_device_in_use_is_not_played_on_unless_told_twice() {
    let name = "a_device_in_use_is_not_played_on_unless_told_twice";
    if !require(name, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let (dir, image) = (scratch(), mkfs(&ImageSpec::with_size(16 << 20)));
    let trace = file(dir.path(), "w.csv", "0,8192,4096,W,0\n").into_os_string();
    let play = |device: &Path, more: &[&str]| {
        let base = [&["replay", "--overwrite"], more].concat();
        with(&base, &[("--trace", &trace), ("--device", &device.into())])
    };
    let device = LoopDevice::attach(image.path()).unwrap();
    let node = device.node().to_owned();
    let mount = device.mount("").unwrap();
    std::fs::write(mount.path().join("kept"), "kept").unwrap();
    for place in [&node, image.path()] {
        let err = refused(1, &play(place, &[]));
        assert!(err.contains("ext4") && err.contains("add --yes"), "{err}");
    }
    assert_eq!(std::fs::read(mount.path().join("kept")).unwrap(), b"kept");
    mount.unmount().unwrap();
    assert!(image.bytes()[1080..1082] == [0x53, 0xEF], "the file system is still there");
    // Without marks it is told from one in use by the kernel.
    let mut whole = File::options().write(true).open(&node).unwrap();
    whole.write_all(&vec![0; 16 << 20]).and_then(|()| whole.sync_all()).unwrap();
    drop(whole);
    let held = File::options().read(true).custom_flags(O_EXCL).open(&node).unwrap();
    let err = refused(1, &play(&node, &[]));
    assert!(err.contains("is mounted or in use"), "{err}");
    let err = refused(1, &play(image.path(), &[]));
    assert!(err.contains("the loop device /dev/loop"), "{err}");
    let written = |said: &str| said.contains("writes") && said.contains("1, 0.0 MB");
    assert!(written(&done(&play(&node, &["--yes"]))), "told twice");
    drop(held);
    assert!(written(&done(&play(&node, &[]))), "nobody has it and it carries nothing");
}

/// Of Linux: a block device that somebody has is not given to others who say this.
const O_EXCL: i32 = 0o200;

/// Ctrl-C comes while the first files are being written.
#[test]
fn an_interrupted_comparison_leaves_whole_files_only() {
    let dir = scratch();
    let (trace, after) = (trace(dir.path()), dir.path().join("after"));
    let csv = dir.path().join("f.csv");
    // More sizes than are done before the signal comes.
    let sizes: Vec<String> = (1..200).map(|pages| format!("{}p", pages * 7)).collect();
    let list = ["cache", "--jobs=1", "--size", &sizes.join(",")];
    let files = [("--after-cache", &after.clone().into()), ("--csv", &csv.clone().into())];
    let mut cache = support::lab();
    cache.args(with(&list, &[&[("--trace", &trace)], &files[..]].concat()));
    let mut cache = cache.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let names = || -> Vec<OsString> {
        let entries = std::fs::read_dir(&after).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    };
    while names().is_empty() {
        assert!(cache.try_wait().unwrap().is_none(), "it goes on");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let pid = rustix::process::Pid::from_child(&cache);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = cache.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted; run the command again"), "{said}");
    assert!(!csv.exists());
    for name in names() {
        assert!(!name.to_string_lossy().starts_with('.'), "{name:?} is a temporary file");
        done(&[OsString::from("trace"), "stat".into(), after.join(name).into()]);
    }
}

/// A file system of 64 KiB, then the same, read-only.
#[test]
fn what_cannot_be_written_is_said_and_leaves_nothing() {
    let name = "what_cannot_be_written_is_said_and_leaves_nothing";
    if !require(name, &[Need::Root]) {
        return;
    }
    let (dir, small) = (scratch(), scratch());
    let (input, noisy) = (trace(dir.path()), noisy(dir.path()));
    let tmpfs = |options| {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(small.path());
        assert!(mount.status().unwrap().success());
    };
    tmpfs("size=64k");
    let _unmount = Unmount(small.path());
    let at = |name: &str| small.path().join(name).into_os_string();
    let import = || {
        let to = with(&["trace", "import"], &[("--output", &at("big.trace"))]);
        [to, vec![noisy.clone()]].concat()
    };
    let cache = |option| with(&["cache"], &[("--trace", &noisy), (option, &at("out"))]);
    for args in [import(), cache("--after-cache")] {
        let err = refused(1, &args);
        assert!(err.to_lowercase().contains("no space left"), "{err}");
        let left = std::fs::read_dir(small.path()).unwrap().flatten();
        let files: Vec<_> = left.filter(|entry| entry.path().is_file()).collect();
        assert!(files.is_empty(), "{files:?}");
    }
    let _ = std::fs::remove_dir_all(at("out"));
    tmpfs("remount,ro");
    let replay =
        with(&["replay", "--device=sd-2012"], &[("--trace", &input), ("--json", &at("x.json"))]);
    for args in [import(), cache("--after-cache")] {
        let err = refused(1, &args);
        assert!(err.contains("read-only file system"), "{err}");
    }
    for args in [cache("--csv"), cache("--html"), replay] {
        // The figures were shown already.
        let ran = run(&args);
        assert!(ran.code == 1 && ran.err.contains("read-only file system"), "{ran:?}");
    }
    assert_eq!(std::fs::read_dir(small.path()).unwrap().count(), 0);
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// A trace that does not fit into 64 KiB, before the cache or after it.
fn noisy(dir: &Path) -> OsString {
    let mut state = 7u64;
    let mut text = String::new();
    for n in 0..30_000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n | 1);
        text += &format!("0,{},4096,W,{}.{:03}\n", (state >> 40) * 8, n / 1000, state >> 54);
    }
    file(dir, "noisy.csv", &text).into()
}

#[test]
fn a_profile_in_a_file_is_checked_like_a_built_in_one() {
    let dir = scratch();
    let path = dir.path().join("card.toml");
    std::fs::write(&path, done(&["devices", "nexus7-emmc"])).unwrap();
    let figures = |name: &str| {
        let text = done(&["devices", "--check", name]);
        let rows = text.lines().map(|row| row.split_whitespace().skip(1).collect::<Vec<_>>());
        rows.map(|row| row.join(" ")).collect::<Vec<_>>()
    };
    let built_in = figures("nexus7-emmc");
    assert!(built_in.len() > 2, "{built_in:?}");
    assert_eq!(figures(path.to_str().unwrap()), built_in);
}
