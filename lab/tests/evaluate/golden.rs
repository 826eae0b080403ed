//! Exact counts of every policy on traces that ship.

use std::fmt::Write;
use std::fs::File;

use syncline_cache::{Counts, Entry, POLICIES, WriteBack};
use syncline_lab::evaluate::{Configuration, Evaluation, PageGather, PageTrace};
use syncline_lab::trace::TraceReader;

fn sample(name: &str) -> PageTrace {
    let path = format!("{}/../samples/{name}.trace", env!("CARGO_MANIFEST_DIR"));
    let mut reader = TraceReader::open(File::open(path).expect("it ships")).expect("it is ours");
    let mut gather = PageGather::new(reader.header().kind);
    reader.read_all(&mut gather).expect("it is whole");
    gather.finish().expect("it has accesses")
}

fn counts(evaluation: &Evaluation<'_>, policy: &'static Entry, pages: usize) -> Counts {
    let write_back = WriteBack::Lazy;
    let configuration = Configuration { policy, pages, write_back, fsync: false };
    let outcome = evaluation.run(&configuration, None, &mut |_| true).expect("no sink");
    outcome.expect("nobody stopped it").counts
}

/// Every policy at eight sizes. A change here is a change of a policy, or the sample was captured
/// again: find out which, and if it is meant, take over the text that the failure prints.
#[test]
fn golden_table_of_a_shipped_trace() {
    let trace = sample("chromium-cold.pages");
    let next_uses = trace.next_uses();
    let evaluation = Evaluation { trace: &trace, next_uses: &next_uses, merge_pages: 1 };
    let mut table =
        String::from("policy pages hits misses dirty_evictions reads writes write_runs\n");
    let mut most_hits = [0; 8];
    for policy in POLICIES {
        for (n, most) in most_hits.iter_mut().enumerate() {
            let pages = 16 << n;
            let c = counts(&evaluation, policy, pages);
            let [hits, misses, dirty] = [c.hits, c.misses, c.dirty_evictions];
            let [reads, writes, runs] = [c.reads, c.write_backs, c.write_runs];
            let name = policy.name;
            let _ =
                writeln!(table, "{name} {pages} {hits} {misses} {dirty} {reads} {writes} {runs}");
            *most = c.hits.max(*most);
            // The bound is the last of the table.
            assert!(!policy.needs_future || hits == *most, "{name} {pages}");
        }
    }
    assert!(table == include_str!("golden.txt"), "golden.txt should be:\n{table}");
}

/// Misses that libCacheSim (its Python package 0.3.5) counts. A line that differs is a mistake of a
/// policy here or of that version: the file is never taken over from this test. Counted by
/// `TRACES="samples/git.pages.trace ..." cargo xtask run compare-libcachesim --pages 32,64,...`.
#[test]
fn misses_are_those_of_libcachesim() {
    let golden = include_str!("libcachesim.txt");
    let mut lines = golden.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let sizes = lines.next().expect("a heading").split_off(2);
    let lines: Vec<Vec<&str>> = lines.collect();
    assert!(lines.len() >= 35, "five traces, and the policies that it has too");
    for of_trace in lines.chunk_by(|a, b| a[0] == b[0]) {
        let trace = sample(of_trace[0][0]);
        let next_uses = trace.next_uses();
        let evaluation = Evaluation { trace: &trace, next_uses: &next_uses, merge_pages: 1 };
        for line in of_trace {
            let policy = POLICIES.iter().find(|policy| policy.name == line[1]).expect(line[1]);
            let misses = |pages: &&str| {
                let pages = pages.parse().expect("a number");
                counts(&evaluation, policy, pages).misses.to_string()
            };
            let ours: Vec<String> = sizes.iter().map(misses).collect();
            assert_eq!(ours, line[2..], "{} {}", line[0], line[1]);
        }
    }
}
