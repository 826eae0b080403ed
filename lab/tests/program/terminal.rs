//! Progress on a terminal: how much, how fast, the time left.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use syncline_testkit::{Need, require, skip};

use crate::support::{lab, scratch};

/// Runs a command on a terminal of 80 columns until a line of progress has all of these parts, then
/// ends it. It must not end by itself before.
fn shows(arguments: &str, parts: &[&str]) {
    let program = lab().get_program().to_str().unwrap().to_owned();
    // The time only ends what hangs.
    let line = format!("timeout --foreground 300 {program} {arguments}");
    let mut script = Command::new("script");
    script.args(["-qefc", &line, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut script = script.stderr(Stdio::null()).spawn().unwrap();
    let (mut said, mut bytes) = (String::new(), [0; 4096]);
    let is_it = |line: &str| parts.iter().all(|part| line.contains(part));
    while !said.split("\r\x1b[K").any(is_it) {
        let count = script.stdout.as_mut().unwrap().read(&mut bytes).unwrap();
        assert_ne!(count, 0, "{arguments}: {said:?}");
        said += &String::from_utf8_lossy(&bytes[..count]);
    }
    kill_process(Pid::from_child(&script), Signal::TERM).unwrap();
    script.wait_with_output().unwrap();
}

#[test]
fn long_measurements_show_amount_rate_and_time_left() {
    let test = "long_measurements_show_amount_rate_and_time_left";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    if !Path::new("/usr/bin/script").exists() {
        return skip(test, "needs script; install util-linux's");
    }
    let dir = scratch();
    let latency = format!("latency {} --operations", dir.path().display());
    let bytes = |what, of| [what, of, "iB, ", "iB/s, ", " left"];
    shows(&format!("{latency}=2000 --only=write"), &bytes("write: ", " of 2000, "));
    let few = format!("{latency}=1000000 --only=fallocate --fallocate-size=64K");
    shows(&few, &bytes("fallocate: ", " of 1000000, "));
    let runs = ["hot-zones/figure-3: ", " of 18, ", "/", " left"];
    shows("reproduce --full hot-zones/figure-3", &runs);
}
