//! `syncline-lab advise`: the advice is the best of what was tried, and what was tried is what
//! `bench replay` measures with the same options.

use std::collections::BTreeSet;

use crate::support::{done, refused};
use serde_json::Value;

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
    assert_eq!((trials.len(), names.len()), (26, 26), "{names:?}");
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
}
