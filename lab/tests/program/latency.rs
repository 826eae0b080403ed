//! `latency`: in a directory, and on a volume of the process.

use crate::support::{Ran, refused, run, scratch};
use syncline_testkit::{Need, require};

#[test]
fn calls_are_timed_in_a_directory_and_in_process() {
    let dir = scratch();
    let small =
        ["--operations", "12", "--fallocate-size", "1M", "--period-us", "1000", "--json", "-"];
    let check = |ran: Ran| {
        assert_eq!(ran.code, 0, "{}", ran.err);
        let document: serde_json::Value = serde_json::from_str(&ran.text()).unwrap();
        assert_eq!(document["schema"], "syncline.latency/1");
        let cases = document["cases"].as_array().unwrap();
        let kind = |case: &serde_json::Value| (case["call"].clone(), case["background"].clone());
        let kinds: Vec<_> = cases.iter().map(kind).collect();
        let want = [("fallocate", false), ("fallocate", true), ("write", false), ("write", true)];
        assert_eq!(kinds, want.map(|(call, background)| (call.into(), background.into())));
        assert!(cases.iter().all(|case| case["calls"] == 12));
        assert!(cases.iter().all(|c| c["background"] == false || c["background_rounds"] != 0));
    };
    check(run(&[&["latency", dir.path().to_str().unwrap()], &small[..]].concat()));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    if require("calls_are_timed_in_a_directory_and_in_process", &[Need::E2fsck]) {
        check(run(&[&["latency", "--in-process", "nexus7-emmc:streams=4"], &small[..]].concat()));
    }
}

#[test]
fn a_device_that_is_not_known_is_refused() {
    refused(2, &["latency", "--in-process", "nexus8-emmc"]);
    assert_eq!(run(&["latency"]).code, 2);
}
