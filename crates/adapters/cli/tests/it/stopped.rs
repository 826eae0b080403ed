//! Ctrl-C and SIGTERM at commands that wait for a pipe: the first one ends them, and soon.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::members::{End, archive, member};
use crate::support::{at, binary, done, scratch, text};

/// Longest time from the signal to the end: 0.2 s, and some for a busy machine.
const SOON: Duration = Duration::from_millis(700);
/// Time in which a command gets to its read.
const READING: Duration = Duration::from_millis(300);

/// Waits until the process handles the signal, which kills it before.
fn handles(child: &Child, signal: Signal) {
    let status = format!("/proc/{}/status", child.id());
    let bit = 1_u64 << (signal.as_raw() - 1);
    let caught = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        u64::from_str_radix(mask, 16).unwrap() & bit != 0
    };
    let began = Instant::now();
    while !caught() {
        assert!(began.elapsed() < Duration::from_secs(30), "no handler");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(READING);
}

/// Starts a command, writes `input` to its standard input, which stays open, and sends `signal`.
fn stops(arguments: &[&str], input: &[u8], signal: Signal) {
    let mut child = binary();
    child.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(input).unwrap();
    handles(&child, signal);
    assert!(child.try_wait().unwrap().is_none(), "{arguments:?} has ended already");
    let began = Instant::now();
    kill_process(Pid::from_child(&child), signal).unwrap();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(10) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{arguments:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let took = began.elapsed();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{arguments:?}: {said}");
    assert_eq!(said, "syncline: interrupted; run the command again\n", "{arguments:?}");
    assert!(took < SOON, "{arguments:?} took {took:?}");
    drop(pipe);
}

fn fifo(dir: &Path) -> String {
    let path = dir.join("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    text(&path).to_owned()
}

#[test]
fn the_first_signal_ends_a_command_that_waits_for_a_pipe() {
    let dir = scratch();
    let path = |name: &str| text(&dir.path().join(name)).to_owned();
    let (image, new, log, fifo) = (path("a.img"), path("new.img"), path("log"), fifo(dir.path()));
    done(&["mkfs", "--size", "16M", &image]);
    let file = at(Path::new(&image), "/file");
    let tar = archive(&[member(b'0', b"f", b"", &vec![7; 100_000])], End::Blocks);
    let part = &tar[..60_000];
    let (int, term) = (Signal::INT, Signal::TERM);
    for (arguments, input) in [
        (&["import", "-", &new][..], &[][..]),
        (&["import", "-", &new], part),
        (&["import", &fifo, &new], &[]),
        (&["import", "-", &image], part),
        (&["import", "--docker", "-", &new], part),
        (&["import", "--owner-map", &fifo, "-", &new], &[]),
        (&["cp", "-", &file], b"x"),
        (&["cp", &fifo, &file], &[]),
        (&["flashlite", "write", &log], b"x"),
        (&["flashlite", "write", &log, &fifo], &[]),
    ] {
        stops(arguments, input, int);
        assert!(!Path::new(&new).exists(), "{arguments:?} leaves an image");
    }
    // A decompressor has a thread of its own.
    stops(&["import", "-", &new], &[0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3], term);
    assert!(done(&["check", &image]).contains("clean"));
    // A writer that comes late is read.
    let writer = std::thread::spawn({
        let fifo = fifo.clone();
        move || {
            std::thread::sleep(READING);
            std::fs::write(fifo, "late").unwrap();
        }
    });
    done(&["cp", &fifo, &file]);
    writer.join().unwrap();
    assert_eq!(done(&["cat", &file]), "late");
}
