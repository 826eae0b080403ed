//! `syncline-lab advise`: the advice is the best of what was tried, and what was tried is what
//! `bench replay` measures with the same options.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::stopped::ended;
use crate::support::{done, refused, run, scratch};
use serde_json::Value;
use syncline_testkit::{ImageSpec, LoopDevice, Need, mkfs, require};

fn sample(name: &str) -> String {
    format!("{}/../samples/{name}.trace", env!("CARGO_MANIFEST_DIR"))
}

fn document(arguments: &[&str]) -> Value {
    serde_json::from_str(&done(arguments)).unwrap()
}

#[test]
fn the_best_of_each_promise_is_advised() {
    let trace = sample("pip.calls");
    let words = ["advise", &trace, "--size", "256", "--per-day", "20"];
    let found = document(&[&words[..], &["--json", "-"]].concat());
    let device = &found["devices"][0];
    let trials = device["trials"].as_array().unwrap();
    let names: BTreeSet<String> =
        trials.iter().map(|one| format!("{} {}", one["options"], one["buffer"])).collect();
    assert_eq!((trials.len(), names.len()), (32, 32), "{names:?}");
    assert_eq!(trials[0]["options"], "sync=ordered");
    let number = |one: &Value, key: &str| one[key].as_f64().unwrap();
    for (keeps, linux, name) in [
        ("syncs", true, "syncs"),
        ("syncs", false, "syncs_syncline"),
        ("sync_point", true, "sync_point"),
        ("minute", true, "minute"),
    ] {
        let of = || trials.iter().filter(|one| one["keeps"] == keeps && one["linux"] == linux);
        let least = |key: &str| of().map(|one| number(one, key)).fold(f64::MAX, f64::min);
        let best = (least("foreground_s"), least("whole_s"));
        let score = |one: &Value| {
            (best.0 / number(one, "foreground_s")).min(best.1 / number(one, "whole_s"))
        };
        let advised = &device[name];
        let is_it = |one: &&Value| {
            one["options"] == advised["options"] && one["buffer"] == advised["buffer"]
        };
        let chosen = of().find(is_it).unwrap();
        let top = of().map(score).fold(0.0, f64::max);
        assert!(score(chosen) >= 0.97 * top, "{name}: {advised}");
        let share = number(chosen, "whole_s") / number(&trials[0], "whole_s");
        assert!((number(advised, "time_share") - share).abs() < 1e-9, "{name}: {advised}");
    }
    // Twice the wear is half the years.
    let years = |one: &Value| number(one, "years") * number(one, "pages");
    assert!(trials.iter().all(|one| (years(one) / years(&trials[0]) - 1.0).abs() < 1e-9));

    let page = done(&words);
    let first = device["advised"][0].as_str().unwrap();
    let options = device[first]["options"].as_str().unwrap();
    assert_eq!(first, "syncs", "the first advice has no risk");
    assert!(page.contains(&format!("Use -o {options}\n")), "{page}");
    assert!(page.contains(&format!("fuse.syncline {options},nofail 0 0\n")), "{page}");
}

#[test]
fn a_trial_is_what_replay_measures() {
    let trace = sample("pip.calls");
    let found = document(&["advise", &trace, "--size", "256", "--json", "-"]);
    let trials = found["devices"][0]["trials"].as_array().unwrap();
    for (sync, more) in [("eager", "log=packed,mtime_update=seen"), ("ordered", "relaxed=*")] {
        let options = format!("sync={sync},{more}");
        let words = ["bench", "replay", "--trace", &trace, "--size", "256", "--sync", sync];
        let run = document(&[&words[..], &["-o", more, "--json", "-"]].concat());
        let metrics = &run["runs"][0]["metrics"];
        let trial = trials.iter().find(|one| one["options"] == *options && one["buffer"] == false);
        let trial = trial.unwrap();
        assert_eq!(trial["whole_s"], metrics["duration_s"], "{options}");
        assert_eq!(trial["pages"], metrics["nand_page_programs"], "{options}");
    }
}

#[test]
fn what_cannot_be_tried_is_refused() {
    let (blocks, calls) = (sample("pip.blocks"), sample("pip.calls"));
    let said = refused(2, &["advise", &blocks]);
    assert!(said.contains("replay wants a trace of system calls"), "{said}");
    let said = refused(2, &["advise", &calls, "--per-day", "0"]);
    assert!(said.contains("give a number above 0"), "{said}");
    let said = refused(1, &["advise", "none.trace"]);
    assert!(said.contains("none.trace"), "{said}");
    let said = refused(2, &["advise", &calls, "--for", "1h"]);
    assert!(said.contains("name one"), "{said}");
    let said = refused(2, &["advise", &calls, "/"]);
    assert!(said.contains("leave the traces out"), "{said}");
    let said = refused(4, &["advise", "/proc"]);
    assert!(said.contains("not on ext4 of the kernel"), "{said}");
}

/// A synced overwrite, and a new file that replaces another one.
fn work(dir: &Path, n: u64) {
    let mut file = File::options().write(true).open(dir.join("old")).unwrap();
    file.write_all(&[n as u8; 4096]).and_then(|()| file.sync_data()).unwrap();
    let new = dir.join("new");
    let mut file = File::create(&new).unwrap();
    file.write_all(b"new").and_then(|()| file.sync_all()).unwrap();
    fs::rename(new, dir.join("renamed")).unwrap();
}

/// Programs work all the time in a directory and beside it: what they did in it is replayed. The
/// device stands for all of its directories. Ctrl-C ends the recording, not the advice.
#[test]
fn what_programs_do_in_a_directory_is_recorded_first() {
    let test = "what_programs_do_in_a_directory_is_recorded_first";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let (scratch, image) = (scratch(), mkfs(&ImageSpec::with_size(16 << 20)));
    let device = LoopDevice::attach(image.path()).unwrap();
    let node = device.node().to_str().unwrap().to_owned();
    let said = refused(2, &["advise", &node, "--for", "1s"]);
    assert!(said.contains("not mounted; mount it"), "{said}");
    let mount = device.mount("").unwrap();
    let [dir, beside] = ["dir", "beside"].map(|name| mount.path().join(name));
    for dir in [&dir, &beside] {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("old"), [0; 8192]).unwrap();
    }
    let at = |name: &str| scratch.path().join(name).display().to_string();
    let (keep, exported) = (at("kept"), at("fio"));
    // The recording has a temporary name until it is whole.
    let is_recorded = || {
        let files = fs::read_dir(scratch.path()).unwrap().flatten();
        files.filter_map(|file| file.metadata().ok()).any(|meta| meta.len() > 0)
    };
    let places = [(dir.to_str().unwrap(), "2s"), (&node, "2s"), (dir.to_str().unwrap(), "1h")];
    for (place, time) in places {
        let words = ["advise", place, "--for", time, "--keep", &keep, "--size=256", "--json=-"];
        let over = AtomicBool::new(false);
        let (code, out, err) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let numbers = 0..u64::MAX;
                for n in numbers.take_while(|_| !over.load(Ordering::Relaxed)) {
                    work(&dir, n);
                    work(&beside, n);
                    // What is recorded is replayed many times.
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let ran = std::panic::catch_unwind(|| match time {
                "1h" => {
                    let output = ended(&words, &is_recorded);
                    let err = String::from_utf8(output.stderr).unwrap();
                    (output.status.code().unwrap(), output.stdout, err)
                }
                _ => {
                    let ran = run(&words);
                    (ran.code, ran.out, ran.err)
                }
            });
            over.store(true, Ordering::Relaxed);
            ran.unwrap()
        });
        assert!(code == 0 && err.starts_with("syncline-lab: recording "), "{code} {err}");
        let found: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(found["devices"][0]["trials"].as_array().unwrap().len(), 32);
        assert_eq!(found["traces"][0], place);
        done(&["trace", "export", &keep, "--to", "fio", "-o", &exported]);
        let calls = fs::read_to_string(&exported).unwrap();
        for call in ["old write 0 4096\n", "old datasync\n", "/inode-", " write 0 3\n"] {
            assert!(calls.contains(call), "{place}: {call}: {calls}");
        }
        assert_eq!(calls.contains("beside"), place == node, "{calls}");
        let again = document(&["advise", &keep, "--size", "256", "--json", "-"]);
        assert_eq!(again["devices"], found["devices"], "the recording is a trace");
        [&keep, &exported].into_iter().for_each(|file| fs::remove_file(file).unwrap());
    }
    mount.unmount().unwrap();
}
