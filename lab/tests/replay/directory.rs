//! Replay in a directory: threads, order on one file, and nothing outside.

use std::path::Path;

use syncline_lab::replay::{DirectoryReplay, DirectoryReplayed, ReplayTrace};
use syncline_lab::trace::{NameId, Names, Op, Record};

fn replay(dir: &Path, names: Names, records: Vec<Record>) -> DirectoryReplayed {
    let trace = ReplayTrace { name: "t".into(), records, names };
    let played = DirectoryReplay { dir, timing: false }.run(&trace, &|_| true).unwrap();
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0, "nothing is left");
    played
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(syncline_testkit::scratch_dir()).unwrap()
}

fn on(thread: u32, op: Op, file: NameId) -> Record {
    Record { thread, file, ..Record::new(0, op) }
}

/// Each of eight threads in turn makes the file, writes it, renames it, deletes it: if a call came
/// before one of another thread that is earlier in the trace, it would be left out.
#[test]
fn calls_of_many_threads_on_one_file_keep_their_order() {
    let dir = scratch();
    let mut names = Names::default();
    let [a, b, sub, inner] = ["/d/a", "/d/b", "/m", "/m/x"].map(|name| names.intern(name));
    let mut records = Vec::new();
    for turn in 0..400u32 {
        let calls = [
            on(0, Op::Create, a),
            on(0, Op::Write, a).range(0, 5000),
            on(0, Op::Fdatasync, a),
            Record { target: b, ..on(0, Op::Rename, a) },
            on(0, Op::Read, b).range(4000, 9000),
            on(0, Op::Unlink, b),
            on(0, Op::Mkdir, sub),
            on(0, Op::Create, inner),
            on(0, Op::Unlink, inner),
            on(0, Op::Rmdir, sub),
        ];
        let thread = |n: usize| turn.wrapping_mul(7).wrapping_add(n as u32) % 8;
        records.extend(
            calls.iter().enumerate().map(|(n, call)| Record { thread: thread(n), ..*call }),
        );
    }
    let played = replay(dir.path(), names, records);
    assert_eq!((played.calls, played.left_out, played.threads), (4000, 0, 8));
    assert_eq!((played.written_bytes, played.read_bytes), (400 * 5000, 400 * 1000));
    assert_eq!(played.sync_calls, 400);
    assert!(played.elapsed_s > 0.0 && played.sync_latency_us_max > 0.0);
}

#[test]
fn what_was_there_is_there_and_what_cannot_be_is_counted() {
    let dir = scratch();
    let mut names = Names::default();
    let [db, none, long] =
        ["/data/db", "/data/none", &"x".repeat(400)].map(|name| names.intern(name));
    let records = vec![
        Record { size_bytes: Some(9000), ..on(1, Op::Present, db) },
        on(1, Op::Read, db).range(8000, 4096),
        on(1, Op::Unlink, none),
        on(1, Op::Create, long),
        Record { result: Some(-2), ..on(1, Op::Open, none) },
        on(1, Op::Sync, NameId::NONE),
    ];
    let played = replay(dir.path(), names, records);
    // The plan makes `none`, since the trace deletes it without having made it, and gives the
    // database what is read of it.
    assert_eq!((played.calls, played.left_out, played.read_bytes), (3, 1, 4096));
}

#[test]
fn a_trace_does_not_leave_its_directory() {
    let dir = scratch();
    let outside = scratch();
    let victim = outside.path().join("victim");
    std::fs::write(&victim, "keep").unwrap();
    let mut names = Names::default();
    let up = format!("/../../../../../..{}", victim.display());
    let [up, link, through] = [&*up, "/link", "/link/victim"].map(|name| names.intern(name));
    let target = names.intern(&outside.path().display().to_string());
    let records = vec![
        on(0, Op::Write, up).range(0, 10),
        on(0, Op::Unlink, up),
        Record { target, ..on(0, Op::Symlink, link) },
        on(0, Op::Write, through).range(0, 10),
        on(0, Op::Unlink, through),
    ];
    let played = replay(dir.path(), names, records);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "keep", "{played:?}");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn a_replay_stops_when_it_is_told_to_and_refuses_too_many_threads() {
    let dir = scratch();
    let mut names = Names::default();
    let file = names.intern("/f");
    let records: Vec<Record> =
        (0..5000).map(|n| on(n % 4, Op::Write, file).range(0, 100)).collect();
    let trace = ReplayTrace { name: "t".into(), records, names };
    let replay = DirectoryReplay { dir: dir.path(), timing: false };
    let played = replay.run(&trace, &|done| done < 1000).unwrap();
    assert!((1000..1200).contains(&played.calls), "{played:?}");
    let records = (0..2000).map(|n| on(n, Op::Write, file).range(0, 1)).collect();
    let trace = ReplayTrace { records, ..trace };
    let error = replay.run(&trace, &|_| true).unwrap_err().to_string();
    assert!(error.contains("2000 threads") && error.contains("; replay a part"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
