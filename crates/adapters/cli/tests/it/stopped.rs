//! Ctrl-C and SIGTERM at commands that wait for a pipe or work for long: the first one ends them,
//! and soon.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::members::{End, archive, member};
use crate::support::{at, binary, done, run, scratch, text};
use syncline_testkit::{Need, require, skip};

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
    drop(pipe);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{arguments:?}: {said}");
    assert_eq!(said, "syncline: interrupted; run the command again\n", "{arguments:?}");
    assert!(took < SOON, "{arguments:?} took {took:?}");
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

/// An archive of so many empty files in directories of 1000.
fn many(files: usize) -> Vec<u8> {
    let mut members = Vec::new();
    for file in 0..files {
        if file % 1000 == 0 {
            members.push(member(b'5', format!("d{}/", file / 1000).as_bytes(), b"", b""));
        }
        members.push(member(b'0', format!("d{}/f{file}", file / 1000).as_bytes(), b"", b""));
    }
    archive(&members, End::Blocks)
}

/// Longest time for a command that works, which takes 0.2 s on a quiet machine. The time of a
/// processor does not depend on other programs, but on how fast it is.
const LATE: Duration = Duration::from_secs(20);
const LATE_WORK_MS: u64 = 3000;

/// Milliseconds that a process had a processor, and whether it has ended.
fn work_ms(process: u32) -> (u64, bool) {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |nr: usize| fields[nr].parse::<u64>().unwrap();
    ((ticks(11) + ticks(12)) * 10, fields[0] == "Z")
}

/// Sends SIGINT as soon as the process handles it; returns whether it was ended by that.
fn is_ended(arguments: &[&str]) -> bool {
    let mut child = binary();
    child.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let handles = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
    };
    while !handles() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(20));
    let began = Instant::now();
    let sent = child.try_wait().unwrap().is_none()
        && kill_process(Pid::from_child(&child), Signal::INT).is_ok();
    let before = if sent { work_ms(child.id()).0 } else { 0 };
    while sent && !work_ms(child.id()).1 && began.elapsed() < LATE {
        std::thread::sleep(Duration::from_millis(5));
    }
    let worked = if sent { work_ms(child.id()).0 - before } else { 0 };
    assert!(worked < LATE_WORK_MS, "{arguments:?} works {worked} ms more");
    let output = child.wait_with_output().unwrap();
    let (took, said) = (began.elapsed(), String::from_utf8_lossy(&output.stderr));
    assert!(took < LATE, "{arguments:?} took {took:?}: {said}");
    let code = output.status.code();
    assert!(code == Some(0) || (sent && code == Some(130)), "{arguments:?}: {code:?}, {said}");
    code == Some(130)
}

#[test]
fn the_first_signal_ends_a_command_that_works_for_long() {
    let dir = scratch();
    let path = |name: &str| text(&dir.path().join(name)).to_owned();
    let (image, copy, tree, tar) = (path("a.img"), path("copy.img"), path("tree"), path("a.tar"));
    std::fs::write(&tar, many(100_000)).unwrap();
    done(&["import", &tar, &image, "--size", "1G"]);
    std::fs::copy(&image, &copy).unwrap();
    let root = |image: &str| at(Path::new(image), "/");
    let (to_tree, new) = (root(&image), path("new.img"));
    let (log, file, full) = (path("log"), path("file"), path("full"));
    std::fs::write(&file, vec![7; 100 << 20]).unwrap();
    // No command needs what the one before it made, which may have ended before that.
    for directory in 0..20 {
        let directory = format!("{full}/d{directory}");
        std::fs::create_dir_all(&directory).unwrap();
        (0..1000).for_each(|file| std::fs::write(format!("{directory}/f{file}"), "").unwrap());
    }
    done(&["flashlite", "write", &log, &file]);
    let commands: [&[&str]; 15] = [
        &["import", &tar, &new],
        &["export", &image, "-o", &path("o.tar")],
        &["export", &image, "-o", "-"],
        &["check", &image],
        &["check", "--compare", &image],
        &["repair", "-n", &image],
        &["ls", "-R", &to_tree],
        &["cp", "-r", &to_tree, &tree],
        &["cp", "-r", &full, &root(&copy)],
        &["rm", "-r", &format!("{}d6", root(&copy)), &format!("{}d7", root(&copy))],
        &["resize", &image, "700M"],
        &["resize", "--minimum", &image],
        &["resize", &image, "64G"],
        &["flashlite", "check", &log],
        &["flashlite", "rearrange", &log, &path("plain")],
    ];
    let ended = commands.iter().filter(|command| is_ended(command)).count();
    assert!(ended >= commands.len() / 2, "{ended} of {} were long enough", commands.len());
    assert!(!Path::new(&new).exists() && !Path::new(&path("o.tar")).exists());
    for image in [&image, &copy] {
        assert!(done(&["check", image]).contains("clean"));
    }
    if !Path::new("/usr/bin/script").exists() {
        return skip("a check shows how far it is", "needs script; install util-linux's");
    }
    // It stands still again and again, so that it takes long enough on any machine.
    let line = format!(
        "{} check {image} & while kill -STOP $! 2> /dev/null; do sleep 0.12; kill -CONT $!; \
         sleep 0.005; done; wait",
        env!("CARGO_BIN_EXE_syncline")
    );
    let ran = Command::new("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
    let shown = String::from_utf8_lossy(&ran.stdout);
    assert!(shown.contains("] inodes: ") && shown.contains(" of "), "{shown:?}");
}

/// The check is over and the files move when the signal comes: the old size is left, and is clean.
#[test]
fn a_resize_that_is_stopped_leaves_a_clean_volume() {
    let dir = scratch();
    let path = |name: &str| text(&dir.path().join(name)).to_owned();
    let (image, large) = (path("a.img"), path("large"));
    let bytes: Vec<u8> = (0..200_000_000_u32).map(|n| (n / 13) as u8).collect();
    std::fs::write(&large, &bytes).unwrap();
    done(&["mkfs", &image, "1G"]);
    done(&["cp", &large, &format!("{image}:/a")]);
    done(&["cp", &large, &format!("{image}:/b")]);
    done(&["rm", &format!("{image}:/a")]);
    let stopped = (0..4).filter(|_| is_ended(&["resize", "--minimum", &image])).count();
    assert!(done(&["check", &image]).contains("clean"), "stopped {stopped} times");
    assert!(run(&["cat", &format!("{image}:/b")]).out == bytes);
}

/// A server and a mount in the foreground end, and nothing stays mounted.
#[test]
fn the_first_signal_ends_a_server() {
    let dir = scratch();
    let path = |name: &str| text(&dir.path().join(name)).to_owned();
    let (image, place) = (path("a.img"), path("mnt"));
    done(&["mkfs", &image, "64M"]);
    is_ended(&["serve", "--nfs", "0", &image]);
    if require("the_first_signal_ends_a_server", &[Need::Fuse]) {
        std::fs::create_dir(&place).unwrap();
        is_ended(&["mount", "-f", &image, &place]);
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(&place), "it stays mounted");
    }
    assert!(done(&["check", &image]).contains("clean"));
}
