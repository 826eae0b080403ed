//! Speed of the volume in memory, beside the kernel's ext4 and libext2fs:
//! `cargo xtask run bench-speed`.
//!
//! ```text
//!   ours        Volume on a populated MemoryDevice, in this process
//!   kernel      ext4 on a loop device over /dev/shm, by system calls   (root and loop devices)
//!   libext2fs   libext2fs.c over a file in /dev/shm                    (cc and libext2fs-dev)
//! ```
//!
//! Figures are user and system time of the process, the best of some rounds in which the three
//! take turns, so that other load disturbs them little and all alike. What the kernel does in its
//! own threads (loop device, write-back) is not counted, which favours it.
//! The C library's heap is asked for huge pages by its tunable, as the mount daemon does: a cache
//! that fills for the first time costs one page fault per 2 MiB then, not one per 4 KiB. A tunable
//! set by the caller stays: `GLIBC_TUNABLES= cargo xtask run bench-speed` shows the difference.
//! Arguments: `rounds=3 names=100000 only=ours`.

mod kernel;
mod libext2fs;
mod ours;

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;

use rustix::time::{ClockId, clock_gettime};

/// One subject of the comparison.
trait Subject {
    /// Runs every workload once on a fresh volume.
    fn round(&mut self, sizes: &Sizes) -> Result<Figures, String>;
}

/// Size of the workload.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    names: usize,
    overwrites: u64,
    file_mib: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { names: 100_000, overwrites: 200_000, file_mib: 256 }
    }
}

/// Workload to seconds of one unit: a name, or a GB of 10^9 bytes.
type Figures = BTreeMap<Work, f64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Create,
    Lookup,
    List,
    Overwrite,
    Write,
    WriteAgain,
    ReadCold,
    ReadWarm,
    Unlink,
}

impl Work {
    const ALL: [(Work, &str); 9] = [
        (Work::Create, "create, us each"),
        (Work::Lookup, "lookup, us each"),
        (Work::List, "ls -lR, us each entry"),
        (Work::Overwrite, "cached 4 KiB overwrites, GB/s"),
        (Work::Write, "1 MiB writes to the device, GB/s"),
        (Work::WriteAgain, "the same into memory used before"),
        (Work::ReadCold, "1 MiB reads from the device, GB/s"),
        (Work::ReadWarm, "1 MiB cached reads, GB/s"),
        (Work::Unlink, "unlink, us each"),
    ];

    fn is_bandwidth(self) -> bool {
        matches!(
            self,
            Work::Overwrite | Work::Write | Work::WriteAgain | Work::ReadCold | Work::ReadWarm
        )
    }
}

/// User and system time of this process so far, in seconds.
fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Runs `f` and notes its time over `units`.
fn measure<R>(figures: &mut Figures, work: Work, units: f64, f: impl FnOnce() -> R) -> R {
    let start = cpu_s();
    let result = f();
    figures.insert(work, (cpu_s() - start) / units);
    result
}

/// Units of a workload of `bytes`.
fn gb(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

fn names(sizes: &Sizes) -> Vec<String> {
    (0..sizes.names).map(|n| format!("file{n:06}")).collect()
}

fn show(work: Work, seconds: Option<f64>) -> String {
    match seconds {
        None => "-".into(),
        Some(seconds) if work.is_bandwidth() => format!("{:.2}", 1.0 / seconds),
        Some(seconds) => format!("{:.2}", seconds * 1e6),
    }
}

/// Formats how many times as fast ours is.
fn ratio(ours: Option<f64>, other: Option<f64>) -> String {
    match (ours, other) {
        (Some(ours), Some(other)) => format!("{:.2}x", other / ours),
        _ => "-".into(),
    }
}

/// A subject by name, or why it cannot run here.
type Column = (&'static str, Result<Box<dyn Subject>, String>);

/// Variable that makes glibc (2.35 and later) use transparent huge pages. It is read at the start
/// of a process.
const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// Starts this program again with the heap on huge pages, unless the caller chose a heap.
fn with_huge_pages() {
    if std::env::var_os(HUGE_PAGES.0).is_some() {
        return;
    }
    let program = std::env::current_exe().expect("Linux tells a program its path");
    let error = std::process::Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(HUGE_PAGES.0, HUGE_PAGES.1)
        .exec();
    eprintln!("without huge pages: {error}");
}

fn main() {
    with_huge_pages();
    let mut sizes = Sizes::default();
    let mut rounds = 3;
    let mut only = String::new();
    for argument in std::env::args().skip(1) {
        if let Some(name) = argument.strip_prefix("only=") {
            only = name.to_owned();
            continue;
        }
        match argument.split_once('=').map(|(key, value)| (key, value.parse::<usize>())) {
            Some(("rounds", Ok(value))) => rounds = value,
            Some(("names", Ok(value))) => sizes.names = value,
            // `--bench` comes from cargo.
            _ if argument == "--bench" => {}
            _ => {
                return eprintln!(
                    "unknown argument {argument}: rounds=N, names=N and only=NAME are known"
                );
            }
        }
    }
    let mut subjects: Vec<Column> = vec![
        ("ours", Ok(Box::new(ours::Ours))),
        ("kernel", kernel::Kernel::new().map(|subject| Box::new(subject) as _)),
        ("libext2fs", libext2fs::Library::new().map(|subject| Box::new(subject) as _)),
    ];
    let mut best = vec![Figures::new(); subjects.len()];
    for _ in 0..rounds {
        for ((name, subject), best) in subjects.iter_mut().zip(&mut best) {
            if !only.is_empty() && only != *name {
                continue;
            }
            let Ok(running) = subject else { continue };
            match running.round(&sizes) {
                Ok(figures) => {
                    for (work, seconds) in figures {
                        let least = best.entry(work).or_insert(seconds);
                        *least = least.min(seconds);
                    }
                }
                Err(why) => *subject = Err(why),
            }
        }
    }
    for (name, subject) in &subjects {
        if let Err(why) = subject {
            println!("{name} skipped: {why}");
        }
    }
    println!(
        "{} names, {} MiB, best of {rounds} rounds, processor time",
        sizes.names, sizes.file_mib
    );
    println!(
        "{:<36}{:>9}{:>9}{:>11}{:>13}{:>16}",
        "", "ours", "kernel", "libext2fs", "ours:kernel", "ours:libext2fs"
    );
    for (work, title) in Work::ALL {
        let at = |subject: usize| best[subject].get(&work).copied();
        println!(
            "{title:<36}{:>9}{:>9}{:>11}{:>13}{:>16}",
            show(work, at(0)),
            show(work, at(1)),
            show(work, at(2)),
            ratio(at(0), at(1)),
            ratio(at(0), at(2)),
        );
    }
}

/// A fresh image of the size every subject gets.
fn image_spec() -> syncline_testkit::ImageSpec {
    let spec = syncline_testkit::ImageSpec::with_size(1 << 30);
    syncline_testkit::ImageSpec { inode_count: Some(200_000), ..spec }
}
