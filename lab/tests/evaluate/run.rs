//! Runs of a policy: counts, the trace after the cache, events.

use crate::support::{applications, of_pages, pages_of};
use std::collections::BTreeMap;
use syncline_cache::{POLICIES, WriteBack, entry};
use syncline_lab::evaluate::{Configuration, Evaluation, Outcome, PageTrace};
use syncline_lab::trace::{Op, Record, TraceKind};

fn run(
    trace: &PageTrace,
    policy: &str,
    pages: usize,
    fsync: bool,
    merge_pages: u64,
) -> (Outcome, Vec<Record>) {
    let next_uses = trace.next_uses();
    let evaluation = Evaluation { trace, next_uses: &next_uses, merge_pages };
    let policy = entry(policy).unwrap();
    let configuration = Configuration { policy, pages, write_back: WriteBack::Lazy, fsync };
    let mut after = Vec::new();
    let outcome = evaluation.run(&configuration, Some(&mut after), &mut |_| true).unwrap();
    (outcome.expect("nobody stopped it"), after)
}

fn short(after: &[Record]) -> Vec<(&'static str, u64, u64, u64)> {
    let page = |record: &Record| (record.offset_bytes / 4096, record.len_bytes / 4096);
    let line = |r: &Record| (r.op.name(), page(r).0, page(r).1, r.time_ns / 1000);
    after.iter().map(line).collect()
}

#[test]
fn pages_become_requests_at_the_time_of_what_caused_them() {
    let trace = of_pages(&[1, 2, -3, -4, -9, 7]);
    let (outcome, after) = run(&trace, "lru", 3, false, 1);
    let expected = [
        ("read", 1, 1, 0),
        ("read", 2, 1, 1),
        ("write", 3, 1, 5),
        ("read", 7, 1, 5),
        ("write", 4, 1, 5),
        ("write", 9, 1, 5),
    ];
    assert_eq!(short(&after), expected);
    assert_eq!((outcome.counts.hits, outcome.counts.reads, outcome.counts.write_backs), (0, 3, 3));
    assert!((outcome.cost_s() - 2700e-6).abs() < 1e-12, "3 reads, 3 writes: {}", outcome.cost_s());
    let (_, merged) = run(&trace, "lru", 3, false, 8);
    assert_eq!(short(&merged)[0], ("read", 1, 2, 0), "pages 1 and 2 are one request");
    // No request is longer than was asked for.
    let long = of_pages(&(1..=20).map(|page| -page).collect::<Vec<_>>());
    let (_, merged) = run(&long, "lru", 32, false, 8);
    let lengths: Vec<u64> = short(&merged).iter().map(|request| request.2).collect();
    assert_eq!(lengths, [8, 8, 4]);
}

#[test]
fn fsync_writes_its_file_and_flushes_or_does_nothing() {
    let (names, records) = applications(3, 2000);
    let trace = pages_of(TraceKind::Syscall, &names, &records);
    let syncs = records.iter().filter(|record| record.op == Op::Fsync).count() as u64;
    let (lazy, after) = run(&trace, "lru", 64, false, 1);
    assert_eq!((lazy.flushes, lazy.counts.background_writes), (0, 0));
    assert!(after.iter().all(|record| record.op != Op::Flush));
    let (eager, after) = run(&trace, "lru", 64, true, 1);
    assert!(eager.flushes > syncs / 2 && eager.counts.background_writes > 0, "{eager:?}");
    let flushes = after.iter().filter(|record| record.op == Op::Flush).count() as u64;
    assert_eq!(flushes, eager.flushes);
    // A write-back changes no hit under a policy that does not look at dirty pages.
    assert_eq!(eager.counts.hits, lazy.counts.hits);
}

/// The trace after the cache is what was counted; the last copy of each page is written.
#[test]
fn what_comes_after_the_cache_is_what_was_counted() {
    let (names, records) = applications(9, 4000);
    let trace = pages_of(TraceKind::Syscall, &names, &records);
    for policy in POLICIES {
        for fsync in [false, true] {
            let (outcome, after) = run(&trace, policy.name, 200, fsync, 1);
            let count = |op| after.iter().filter(|record| record.op == op).count() as u64;
            let counts = outcome.counts;
            let name = policy.name;
            assert_eq!((count(Op::Read), count(Op::Write)), (counts.reads, counts.write_backs));
            assert_eq!(counts.hits + counts.misses, trace.accesses() as u64, "{name}");
            assert!(after.is_sorted_by_key(|record| record.time_ns), "{name}");
            let (_, merged) = run(&trace, policy.name, 200, fsync, 128);
            let bytes = |list: &[Record]| -> u64 { list.iter().map(|r| r.len_bytes).sum() };
            assert_eq!(bytes(&merged), bytes(&after), "{name}");
            assert!(merged.len() < after.len(), "{name}");
        }
    }
}

#[test]
fn a_page_that_was_lost_is_not_written() {
    let (names, records) = applications(4, 1);
    let file = records[0].file;
    let on = |op| Record { file, ..Record::new(0, op) };
    let records = [on(Op::Write).range(0, 8192), on(Op::Unlink), on(Op::Read).range(0, 1)];
    let trace = pages_of(TraceKind::Syscall, &names, &records);
    for policy in POLICIES {
        let (outcome, _) = run(&trace, policy.name, 8, true, 1);
        let counts = outcome.counts;
        assert_eq!((counts.hits, counts.write_backs, counts.reads), (0, 0, 1), "{}", policy.name);
    }
}

#[test]
fn a_run_stops_when_it_is_told_to() {
    let trace = of_pages(&(0..50_000).collect::<Vec<_>>());
    let evaluation = Evaluation { trace: &trace, next_uses: &[], merge_pages: 1 };
    let policy = entry("lru").unwrap();
    let write_back = WriteBack::Lazy;
    let configuration = Configuration { policy, pages: 4, write_back, fsync: false };
    let mut seen = BTreeMap::new();
    let mut watch = |done: usize| {
        *seen.entry("done").or_insert(0) += done;
        seen["done"] < 30_000
    };
    assert_eq!(evaluation.run(&configuration, None, &mut watch).unwrap(), None);
    assert!((30_000..50_000).contains(&seen["done"]), "{seen:?}");
}
