//! The swarm in small, and the storage back end under a real client.

use std::path::Path;

use clap::Parser;
use syncline_swarm::{Outcome, RunArgs, run};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: RunArgs,
}

fn download(words: &[&str]) -> Vec<Outcome> {
    let words = [&["swarm", "--timeout", "120"], words].concat();
    let args = Line::parse_from(words).args;
    run(&args, Path::new(env!("CARGO_BIN_EXE_syncline-swarm"))).unwrap()
}

fn check(outcomes: &[Outcome], size: u64, piece: u64) {
    let names: Vec<&str> = outcomes.iter().map(|outcome| outcome.storage.as_str()).collect();
    assert_eq!(names, ["default", "flashlite"]);
    for outcome in outcomes {
        assert!(outcome.identical, "{outcome:?}");
        let found = outcome.resumed_bytes.unwrap();
        // Every piece that the client told of before it was killed is there.
        assert!((size / 2..size).contains(&found), "{outcome:?}");
        // Blocks of pieces that were not whole come twice, others do not.
        let twice = outcome.sent_bytes - size;
        assert!(twice <= size - found && twice <= 8 * 128 * (16 << 10) + 8 * piece, "{outcome:?}");
    }
    assert_eq!(outcomes[0].sha256, outcomes[1].sha256);
}

#[test]
fn killed_and_resumed_downloads_are_identical() {
    let outcomes = download(&["--size", "24", "--piece", "64", "--peers", "4", "--plain"]);
    check(&outcomes, 24 << 20, 64 << 10);
    assert!(outcomes.iter().all(|outcome| outcome.download.is_none() && outcome.events.is_empty()));
}

#[test]
fn seeders_serve_pieces_that_are_no_multiple_of_the_file() {
    let words = ["--size", "17", "--piece", "100", "--peers", "3", "--seeders", "--plain"];
    let outcomes = download(&words);
    check(&outcomes, 17 << 20, 100 << 10);
}

#[test]
fn a_mount_below_sees_one_sequence_of_writes() {
    if !Path::new("/dev/fuse").exists() {
        println!("not run: this machine has no /dev/fuse");
        return;
    }
    let words = ["--size", "64", "--piece", "64", "--dirty", "4"];
    let outcomes = download(&words);
    check(&outcomes, 64 << 20, 64 << 10);
    let [default, flashlite] = &outcomes[..] else { panic!("two storages") };
    let ratio = |outcome: &Outcome| outcome.download.unwrap().sequential_ratio;
    assert!(ratio(flashlite) >= 0.95, "{:?}", flashlite.download);
    assert!(ratio(default) < 0.9 * ratio(flashlite), "{:?}", default.download);
    let burst = |outcome: &Outcome| outcome.download.unwrap().mean_burst_bytes;
    assert!(burst(flashlite) > 2.0 * burst(default), "{:?}", flashlite.download);
    let rearranged = flashlite.rearrange.unwrap();
    assert!(rearranged.sequential_ratio >= 0.95, "{rearranged:?}");
    assert!(rearranged.written_bytes >= 64 << 20, "{rearranged:?}");
    // Nothing but tags and what came twice is written beside the data.
    let written = flashlite.download.unwrap().written_bytes;
    assert!(written < 64 << 20 << 1, "{written}");
    assert!(!default.events.is_empty() && flashlite.events_lost == 0);
}
