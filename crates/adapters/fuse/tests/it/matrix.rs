//! Every way to change a file beside every way to read it, from two processes, on a mount and on
//! the kernel's ext4: see `matrix` of the crate posix. `SYNCLINE_MATRIX_ROUNDS` makes it longer,
//! and then runs it with more options.

use std::path::Path;
use std::process::Command;

use syncline_testkit::posix::matrix::{self, Cell, Change, Seen};
use syncline_testkit::{ImageSpec, KernelMount, Need, mkfs, require};

use crate::mounted::Mounted;

/// Changes of a cell with several writes under way, which need luck to go wrong: where the kernel
/// was left to complete them by itself, 60 rounds showed it in every run.
const QUEUED_ROUNDS: u64 = 60;
/// Changes of another cell.
const ROUNDS: u64 = 6;

/// Not a test: what the tests start as their second process.
#[test]
fn the_second_process() {
    matrix::other_process();
}

fn second_process() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "matrix::the_second_process", "--nocapture"]);
    command
}

fn seen(dir: &Path, cell: Cell, rounds: u64) -> Seen {
    matrix::run(dir, cell, rounds, second_process()).unwrap()
}

/// The same as on the kernel's ext4, which is asked where something is not as it should be.
fn all_cells(options: &str, long: Option<u64>) {
    let spec = ImageSpec::with_size(64 << 20);
    let kernel_image = mkfs(&spec);
    let kernel = KernelMount::new(kernel_image.path(), "").unwrap();
    let mut ours = Mounted::new(mkfs(&spec), options);
    let mut worse = Vec::new();
    for cell in Cell::all() {
        let queued = matches!(cell.change, Change::Aio | Change::Uring);
        let rounds = long.unwrap_or(if queued { QUEUED_ROUNDS } else { ROUNDS });
        match seen(&ours.dir, cell, rounds) {
            Seen::Right => {}
            mine => match seen(kernel.path(), cell, rounds) {
                Seen::Right => worse.push(format!("{cell}: {mine:?}")),
                theirs => println!("{cell}: {mine:?}, on the kernel's ext4 {theirs:?}"),
            },
        }
    }
    assert!(worse.is_empty(), "`{options}`: {}", worse.join("\n"));
    kernel.unmount().unwrap();
    ours.unmount_clean();
}

#[test]
fn every_change_is_seen_by_every_reader() {
    let needs = [Need::Fuse, Need::E2fsck, Need::Root, Need::Loop];
    if !require("every_change_is_seen_by_every_reader", &needs) {
        return;
    }
    let rounds = std::env::var("SYNCLINE_MATRIX_ROUNDS").ok();
    let rounds = rounds.map(|text| text.parse().expect("SYNCLINE_MATRIX_ROUNDS is a number"));
    all_cells("", rounds);
    if rounds.is_some() {
        for options in ["sync=ordered", "writeback_cache", "cache=4M"] {
            all_cells(options, rounds);
        }
    }
}
