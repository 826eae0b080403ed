//! CPU affinity of workers, through the kernel; see `src/affinity`.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use syncline_testkit::{Need, TIMEOUT, require, skip};

use crate::image;
use crate::mounted::Mounted;

/// Root may let a thread come back from SCHED_IDLE.
const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::E2fsck];
/// `SCHED_IDLE` in proc(5)'s `stat`.
const IDLE: &str = "5";
/// Files made between two looks at the threads of the mount.
const FILES: usize = 50;

fn two_cpus(test: &str) -> bool {
    let enough = sched_getaffinity(None).unwrap().count() > 1;
    if !enough {
        skip(test, "one CPU");
    }
    enough
}

/// CPUs of the mount's threads that are idle by policy.
fn bound(pid: u32) -> Vec<usize> {
    let field = |stat: &str, number: usize| {
        stat.rsplit_once(')')
            .unwrap()
            .1
            .split_ascii_whitespace()
            .nth(number - 3)
            .unwrap()
            .to_owned()
    };
    fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .filter_map(|task| fs::read_to_string(task.unwrap().path().join("stat")).ok())
        .filter(|stat| field(stat, 41) == IDLE)
        .map(|stat| field(&stat, 39).parse().unwrap())
        .collect()
}

/// Small calls in turn.
fn calls(dir: &Path) {
    for number in 0..FILES {
        let path = dir.join(format!("f{number}"));
        fs::write(&path, "x").unwrap();
        fs::remove_file(&path).unwrap();
    }
}

/// Makes calls until `seen` says so of the CPUs of bound threads.
fn call_until(m: &Mounted, what: &str, mut seen: impl FnMut(&[usize]) -> bool) {
    let began = Instant::now();
    loop {
        calls(&m.dir);
        if seen(&bound(m.pid())) {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "{what}");
    }
}

/// Binds the calling thread to the first of its CPUs.
fn bind() -> usize {
    let all = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|at| all.is_set(*at)).unwrap();
    let mut only = CpuSet::new();
    only.set(first);
    sched_setaffinity(None, &only).unwrap();
    first
}

#[test]
fn a_worker_is_bound_beside_one_program_and_not_several() {
    let name = "a_worker_is_bound_beside_one_program_and_not_several";
    if !require(name, &NEEDS) || !two_cpus(name) {
        return;
    }
    let mut m = Mounted::new(image(), "uring=off");
    let here = thread::scope(|scope| {
        let there = scope.spawn(|| {
            let here = bind();
            call_until(&m, "no worker is bound", |at| at == [here]);
            here
        });
        there.join().unwrap()
    });
    // A second one: each request is of another than the one before it, now and then.
    let (end, dir) = (AtomicBool::new(false), m.at("second"));
    fs::create_dir(&dir).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                calls(&dir);
            }
        });
        call_until(&m, "a worker is bound beside two programs", |at| at.is_empty());
        end.store(true, Ordering::Relaxed);
    });
    call_until(&m, "no worker is bound again", |at| !at.is_empty());
    // Without requests it is an ordinary thread again.
    let began = Instant::now();
    while !bound(m.pid()).is_empty() {
        assert!(began.elapsed() < TIMEOUT, "a worker without work stays bound to {here}");
        thread::sleep(Duration::from_millis(10));
    }
    m.unmount_clean();
    m.mount("affinity=none,uring=off");
    for _ in 0..20 {
        calls(&m.dir);
        assert_eq!(bound(m.pid()), [0; 0]);
    }
    m.unmount_clean();
}

#[test]
fn a_busy_cpu_starves_no_worker() {
    let name = "a_busy_cpu_starves_no_worker";
    if !require(name, &NEEDS) || !two_cpus(name) {
        return;
    }
    let mut m = Mounted::new(image(), "uring=off");
    let end = AtomicBool::new(false);
    let mut calm = 0;
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let here = bind();
            call_until(&m, "no worker is bound", |at| at == [here]);
            scope.spawn(|| {
                bind();
                while !end.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            // A worker that got what this leaves would be there for as long as calls come.
            call_until(&m, "the worker waits for the CPU", |at| {
                calm = if at.is_empty() { calm + 1 } else { 0 };
                calm >= 20
            });
            end.store(true, Ordering::Relaxed);
        });
        caller.join().unwrap();
    });
    m.unmount_clean();
}
