//! The helper as a process: what it has, how it ends, what its end means to the caller.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use syncline::{Access, At, Disk, Error, OpenOptions};
use syncline_testkit::{ImageSpec, Need, e2fsck_clean, mkfs, require};

use crate::{alone, isolated, open};

const EIO: i32 = 5;

/// The helpers of this process, ended ones that nobody waited for as well.
fn helpers() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let children = threads
        .filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).ok());
    let children: Vec<String> = children.collect();
    let numbers = children.iter().flat_map(|list| list.split_whitespace());
    numbers.map(|number| Pid::from_raw(number.parse().unwrap()).unwrap()).collect()
}

fn the_helper() -> Pid {
    let found = helpers();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

fn proc(of: Pid, name: &str) -> PathBuf {
    Path::new("/proc").join(of.as_raw_nonzero().to_string()).join(name)
}

fn is_gone<T: std::fmt::Debug>(answer: syncline::Result<T>) {
    let err: Error = answer.unwrap_err();
    assert_eq!(err.errno, EIO, "{err}");
    for part in ["has ended", "close the volume", "run `syncline check`"] {
        assert!(err.text.contains(part), "{err}");
    }
}

#[test]
fn a_helper_that_is_killed_costs_calls_and_nothing_that_was_synced() {
    const NAME: &str = "a_helper_that_is_killed_costs_calls_and_nothing_that_was_synced";
    if !require(NAME, &[Need::E2fsck]) {
        return;
    }
    let _alone = alone();
    let image = mkfs(&ImageSpec::default());
    let disk = open(image.path(), "");
    let synced = disk.open_file(b"/synced", Access::CREATE, 0o644).unwrap();
    synced.write(&[7; 100_000]).unwrap();
    synced.sync(false).unwrap();
    let other = disk.open_file(b"/other", Access::CREATE, 0o644).unwrap();
    let mut listing = disk.open_directory(b"/").unwrap();
    // In the middle of the work of several threads.
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|at| {
                let other = &other;
                scope.spawn(move || {
                    (0..u64::MAX).find_map(|round| {
                        let done = other.write_at((round % 64) << 16 | at << 12, &[3; 4096]);
                        done.and_then(|_| other.sync(true)).err()
                    })
                })
            })
            .collect();
        while other.stat().unwrap().size < 40 << 16 {
            std::thread::yield_now();
        }
        kill_process(the_helper(), Signal::KILL).unwrap();
        for writer in writers {
            is_gone::<()>(Err(writer.join().unwrap().unwrap()));
        }
    });
    is_gone(synced.read_at(0, &mut [0; 10]));
    is_gone(synced.write_at(0, &[0; 10]));
    is_gone(disk.stat(b"/synced", At::Follow));
    is_gone(disk.open_file(b"/new", Access::CREATE, 0o644));
    is_gone(listing.next_entry());
    is_gone(disk.sync());
    is_gone(other.close());
    is_gone(disk.close());
    assert_eq!(disk.stat(b"/", At::Follow).unwrap_err().errno, 9, "closed all the same");
    assert_eq!(helpers(), [], "nobody is left to wait for");
    let disk = Disk::open(image.path(), &OpenOptions::default()).unwrap();
    assert!(disk.opened().transactions_replayed > 0);
    let synced = disk.open_file(b"/synced", Access::READ, 0).unwrap();
    let mut back = vec![0; 100_001];
    assert_eq!(synced.read_at(0, &mut back).unwrap(), 100_000);
    assert!(back[..100_000].iter().all(|byte| *byte == 7));
    drop(synced);
    disk.close().unwrap();
    e2fsck_clean(image.path()).unwrap();
}

/// Dropping a disk writes nothing more and frees the image at once, whether it was closed or not.
#[test]
fn a_helper_ends_with_its_disk() {
    let _alone = alone();
    for closes in [true, false] {
        let image = mkfs(&ImageSpec::default());
        let disk = open(image.path(), "");
        disk.open_file(b"/synced", Access::CREATE, 0o644).unwrap().sync(false).unwrap();
        disk.open_file(b"/late", Access::CREATE, 0o644).unwrap().write(b"x").unwrap();
        the_helper();
        if closes {
            disk.close().unwrap();
            assert_eq!(helpers(), []);
        }
        drop(disk);
        assert_eq!(helpers(), []);
        let disk = Disk::open(image.path(), &OpenOptions::default()).unwrap();
        assert_eq!(disk.opened().transactions_replayed > 0, !closes);
        disk.stat(b"/synced", At::Follow).unwrap();
        disk.close().unwrap();
    }
    // One that could not be opened has none either.
    let image = mkfs(&ImageSpec::default());
    Disk::open(image.path(), &isolated("strict=x")).unwrap_err();
    assert_eq!(helpers(), []);
}

/// Only the image, its sockets and standard error; no variable, no directory, no terminal's
/// signals.
#[test]
fn a_helper_has_only_what_it_needs() {
    const NAME: &str = "a_helper_has_only_what_it_needs";
    if !require(NAME, &[Need::Root]) {
        return;
    }
    let _alone = alone();
    let image = mkfs(&ImageSpec::default());
    let secret = std::fs::File::open("/etc/passwd").unwrap();
    // As a C program opens it, without close-on-exec.
    let open_in_programs = rustix::io::dup(&secret).unwrap();
    let disk = open(image.path(), "");
    let helper = the_helper();
    // Calls beside each other have connections of their own.
    std::thread::scope(|scope| {
        for at in 0..8 {
            let disk = &disk;
            scope.spawn(move || {
                let name = format!("/{at}").into_bytes();
                let file = disk.open_file(&name, Access::CREATE, 0o644).unwrap();
                (0..50).for_each(|_| file.sync(false).unwrap());
            });
        }
    });
    let image_path = std::fs::canonicalize(image.path()).unwrap();
    for entry in std::fs::read_dir(proc(helper, "fd")).unwrap() {
        let entry = entry.unwrap();
        let to = std::fs::read_link(entry.path()).unwrap();
        let shown = to.to_string_lossy();
        let expected = match entry.file_name().to_str().unwrap() {
            "0" | "1" => shown == "/dev/null",
            "2" => true,
            _ => to == image_path || shown.starts_with("socket:") || shown.contains("[pidfd]"),
        };
        assert!(expected, "{entry:?}: {shown}");
    }
    assert!(std::fs::read(proc(helper, "environ")).unwrap().is_empty());
    assert_eq!(std::fs::read_link(proc(helper, "cwd")).unwrap(), Path::new("/"));
    let status = std::fs::read_to_string(proc(helper, "status")).unwrap();
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapPrm:\t0000000000000000", "Uid:\t65534"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    assert_ne!(rustix::process::getpgid(Some(helper)).unwrap(), rustix::process::getpgrp());
    drop(open_in_programs);
    disk.close().unwrap();
}

/// The program of a library that names none in its options.
#[test]
fn the_environment_names_the_program() {
    let Some(image) = std::env::var_os("SYNCLINE_TEST_NAMED") else {
        let _alone = alone();
        let image = mkfs(&ImageSpec::default());
        let ran = |program: &Path| {
            let mut again = Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", "process::the_environment_names_the_program", "--nocapture"]);
            again.env("SYNCLINE_TEST_NAMED", image.path()).env("SYNCLINE_PROGRAM", program);
            String::from_utf8(again.output().unwrap().stdout).unwrap()
        };
        assert!(ran(&syncline_testkit::program("syncline", "syncline-cli")).contains("opened: Ok"));
        assert!(ran(Path::new("/no/such/program")).contains("/no/such/program: No such file"));
        return;
    };
    let disk = Disk::open(image.as_ref(), &OpenOptions::parse("isolate").unwrap());
    println!("opened: {disk:?}");
}

/// More threads than connections.
#[test]
fn every_thread_may_call() {
    if !require("every_thread_may_call", &[Need::E2fsck]) {
        return;
    }
    let _alone = alone();
    let image = mkfs(&ImageSpec::default());
    let disk = open(image.path(), "");
    std::thread::scope(|scope| {
        for at in 0..40_u8 {
            let disk = &disk;
            scope.spawn(move || {
                let name = format!("/{at}").into_bytes();
                let file = disk.open_file(&name, Access::CREATE, 0o644).unwrap();
                for round in 0..20_u64 {
                    file.write_at(round * 5000, &[at; 5000]).unwrap();
                    let mut back = [0; 5000];
                    assert_eq!(file.read_at(round * 5000, &mut back).unwrap(), 5000);
                    assert_eq!(back, [at; 5000]);
                }
                file.sync(true).unwrap();
            });
        }
    });
    disk.close().unwrap();
    e2fsck_clean(image.path()).unwrap();
}

/// The program of the next test: opens the image and waits for its end.
#[test]
fn a_program_that_is_killed() {
    let Some(image) = std::env::var_os("SYNCLINE_TEST_KILLED") else { return };
    let disk = open(image.as_ref(), "");
    disk.open_file(b"/synced", Access::CREATE, 0o644).unwrap().sync(false).unwrap();
    disk.open_file(b"/late", Access::CREATE, 0o644).unwrap().write(b"x").unwrap();
    // A process that was forked has copies of the sockets.
    let mut child = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap();
    println!("\nready {}", child.id());
    std::io::stdout().flush().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_helper_ends_with_its_program() {
    let _alone = alone();
    let image = mkfs(&ImageSpec::default());
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "process::a_program_that_is_killed", "--nocapture"]);
    program.env("SYNCLINE_TEST_KILLED", image.path()).stdout(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let ready = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("ready ").map(|number| number.parse::<i32>().unwrap()));
    let sleeper = Pid::from_raw(ready.unwrap()).unwrap();
    let err = Disk::open(image.path(), &OpenOptions::default()).unwrap_err();
    assert_eq!(err.errno, 16, "{err}");
    program.kill().unwrap();
    assert_eq!(program.wait().unwrap().signal(), Some(9));
    // Until the helper has seen it.
    let disk = loop {
        match Disk::open(image.path(), &OpenOptions::default()) {
            Err(err) if err.errno == 16 => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    kill_process(sleeper, Signal::KILL).unwrap();
    assert!(disk.opened().transactions_replayed > 0);
    disk.stat(b"/synced", At::Follow).unwrap();
    disk.close().unwrap();
}

/// The filter of the helper has every system call of its work.
#[test]
fn no_call_of_a_helper_is_refused() {
    const NAME: &str = "no_call_of_a_helper_is_refused";
    let strace = Path::new("/usr/bin/strace");
    if !strace.is_file() {
        return syncline_testkit::skip(NAME, "needs strace; install it");
    }
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let (log, traced) = (place.path().join("calls"), place.path().join("traced"));
    let program = syncline_testkit::program("syncline", "syncline-cli");
    let (out, program) = (log.join("calls"), program.display());
    let strace = format!("/usr/bin/strace -ff -qq -o {} {program} \"$@\"", out.display());
    // Not the last command, so that the shell stays: it is what is killed.
    let script = format!("#!/bin/sh\n{strace}\n:\n");
    // By a process: children of other tests would have it open to write (ETXTBSY).
    let made = format!("cat > {0}; chmod 755 {0}", traced.display());
    let mut sh = Command::new("sh").arg("-c").arg(made).stdin(Stdio::piped()).spawn().unwrap();
    sh.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(sh.wait().unwrap().success());
    for more in ["sync=eager,commit=1,discard", "sync=periodic,commit=1,cache=4M"] {
        std::fs::create_dir(&log).unwrap();
        let image = mkfs(&ImageSpec::with_size(64 << 20));
        let options = OpenOptions::parse(&format!("isolate={},{more}", traced.display())).unwrap();
        let disk = Disk::open(image.path(), &options).unwrap();
        std::thread::scope(|scope| {
            for at in 0..4 {
                let disk = &disk;
                scope.spawn(move || {
                    let name = format!("/{at}").into_bytes();
                    let file = disk.open_file(&name, Access::CREATE, 0o644).unwrap();
                    file.write(&vec![at; 5 << 20]).unwrap();
                    file.sync(false).unwrap();
                    file.truncate(0).unwrap();
                });
            }
        });
        disk.sync().unwrap();
        disk.close().unwrap();
        drop(disk);
        // A file for each thread.
        let calls = loop {
            let files = std::fs::read_dir(&log).unwrap();
            let calls = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
            let calls: String = calls.collect();
            if calls.contains("exit_group(0)") {
                break calls;
            }
            std::thread::yield_now();
        };
        assert!(calls.contains("seccomp("), "it gives up its rights");
        // The C library asks, and does without.
        let asks = ["/sys/devices/system/cpu", "/proc/stat", "/proc/sys/vm/overcommit_memory"];
        let refused = calls.lines().filter(|line| line.contains("= -1 EPERM"));
        let refused = refused.filter(|line| !asks.iter().any(|path| line.contains(path)));
        let refused: Vec<&str> = refused.collect();
        assert_eq!(refused, [""; 0], "{more}");
        std::fs::remove_dir_all(&log).unwrap();
    }
}
