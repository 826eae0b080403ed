//! Coarse mtime on devices that sync faster than the clock's tick, as the coarse-mtime paper
//! measured it: 4 KiB overwrite + fsync and SQLite PERSIST with fsync, ordered mode, an interval of
//! 100 ms. `--nocapture` prints the figures beside the paper's and beside the formula.
//!
//! With `p` milliseconds an operation and a tick of `t`, min(1, p / t) commits an operation are
//! needed; with an interval of `i` it is p' / i, where p' is the time of an operation without a
//! commit. So the journal shrinks to (p' / i) / min(1, p / t).

use syncline_fs::MountOptions;
use syncline_lab::Unobserved;
use syncline_lab::bench::{
    Image, JournalMode, Parameters, Run, Simulation, compare, comparison_table, find,
};
use syncline_nand::Profile;

const INTERVAL_MS: f64 = 100.0;

/// One of the paper's machines.
struct Machine {
    device: &'static str,
    tick_ms: f64,
    /// Share of the journal bytes that must go, in per cent.
    cut_percent: f64,
    /// The same for SQLite PERSIST.
    sqlite_cut_percent: f64,
}

const PC: Machine =
    Machine { device: "ssd-850pro", tick_ms: 4.0, cut_percent: 97.0, sqlite_cut_percent: 33.0 };
const PHONE: Machine =
    Machine { device: "galaxy-s6-ufs", tick_ms: 10.0, cut_percent: 87.0, sqlite_cut_percent: 33.0 };

fn run(machine: &Machine, image: &Image, workload: &str, mtime: &str, p: &Parameters) -> Run {
    let profile = Profile::by_name(machine.device).unwrap();
    let mount =
        MountOptions::parse(&format!("sync=ordered,timer_tick_ms={},{mtime}", machine.tick_ms))
            .unwrap();
    let simulation = Simulation { profile: &profile, image, mount: &mount, parameters: p };
    simulation.run(find(workload).unwrap()[0], &Unobserved).unwrap()
}

fn journal_bytes(run: &Run) -> f64 {
    run.metrics.device.as_ref().unwrap().journal_bytes as f64
}

fn check(test: &str, machine: &Machine) {
    let Some(image) = crate::common::image(test) else { return };
    let mut runs = Vec::new();
    let parameters = crate::common::parameters(JournalMode::Persist, Some(10_000));
    for workload in ["fileio/random-overwrite-fsync", "fileio/sequential-overwrite-fsync"] {
        let base = run(machine, image, workload, "", &parameters);
        let coarse = run(machine, image, workload, "mtime_update=100", &parameters);
        let ideal = run(machine, image, "fileio/random-overwrite-fdatasync", "", &parameters);
        let left = journal_bytes(&coarse) / journal_bytes(&base);
        let period_ms = |run: &Run| 1e3 / run.foreground.transactions_per_s;
        let formula =
            period_ms(&coarse) / INTERVAL_MS / (period_ms(&base) / machine.tick_ms).min(1.0);
        let to_ideal = coarse.foreground.transactions_per_s / ideal.foreground.transactions_per_s;
        println!(
            "{} {workload}: {:.2} ms an operation, {:.2} with mtime_update=100, {:.2} fdatasync; \
             journal -{:.1} % (formula -{:.1} %)",
            machine.device,
            period_ms(&base),
            period_ms(&coarse),
            period_ms(&ideal),
            (1.0 - left) * 100.0,
            (1.0 - formula) * 100.0,
        );
        assert!((1.0 - left) * 100.0 >= machine.cut_percent, "{left}");
        assert!((left / formula - 1.0).abs() < 0.15, "{left} against {formula}");
        assert!(to_ideal >= 0.94, "{to_ideal} of fdatasync");
        assert!(coarse.foreground.transactions_per_s > base.foreground.transactions_per_s);
        runs.extend([base, coarse]);
    }
    let parameters =
        Parameters { sqlite_fsync: true, operations: Some(1000), ..parameters.clone() };
    let base = run(machine, image, "sqlite/insert", "", &parameters);
    let coarse = run(machine, image, "sqlite/insert", "mtime_update=100", &parameters);
    let cut = (1.0 - journal_bytes(&coarse) / journal_bytes(&base)) * 100.0;
    assert!(cut >= machine.sqlite_cut_percent, "PERSIST: journal -{cut:.1} %");
    runs.extend([base, coarse]);
    println!("{}", comparison_table(&compare(&runs)));
}

#[test]
fn on_the_pc_a_tick_of_4_ms() {
    check("on_the_pc_a_tick_of_4_ms", &PC);
}

#[test]
fn on_the_phone_a_tick_of_10_ms() {
    check("on_the_phone_a_tick_of_10_ms", &PHONE);
}
