//! Exact counts of every policy on a trace that ships.

use std::fmt::Write;
use std::fs::File;

use syncline_cache::{POLICIES, WriteBack};
use syncline_lab::evaluate::{Configuration, Evaluation, PageGather};
use syncline_lab::trace::TraceReader;

/// A browser session, captured on a mount: its reads and writes before the cache.
const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../samples/chromium-cold.pages.trace");

/// Every policy at eight sizes. A change here is a change of a policy, or the sample was captured
/// again: find out which, and if it is meant, take over the text that the failure prints.
#[test]
fn golden_table_of_a_shipped_trace() {
    let mut reader = TraceReader::open(File::open(TRACE).expect("it ships")).expect("it is ours");
    let mut gather = PageGather::new(reader.header().kind);
    reader.read_all(&mut gather).expect("it is whole");
    let trace = gather.finish().expect("it has accesses");
    let next_uses = trace.next_uses();
    let evaluation = Evaluation { trace: &trace, next_uses: &next_uses, merge_pages: 1 };
    let mut table =
        String::from("policy pages hits misses dirty_evictions reads writes write_runs\n");
    let mut most_hits = [0; 8];
    for policy in POLICIES {
        for (n, most) in most_hits.iter_mut().enumerate() {
            let pages = 16 << n;
            let write_back = WriteBack::Lazy;
            let configuration = Configuration { policy, pages, write_back, fsync: false };
            let outcome = evaluation.run(&configuration, None, &mut |_| true).expect("no sink");
            let c = outcome.expect("nobody stopped it").counts;
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
