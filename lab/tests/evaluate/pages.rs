//! The rules that make accesses to pages of a trace.

use crate::support::{applications, of_pages, pages_of};
use std::collections::BTreeMap;
use syncline_cache::{Access, PageAccess};
use syncline_lab::evaluate::{PageGather, PageTrace};
use syncline_lab::trace::{Flags, Names, Op, Record, Sink, TraceKind};

fn all(trace: &PageTrace) -> Vec<(u64, char)> {
    let letter = |access: &PageAccess| if access.access == Access::Read { 'r' } else { 'w' };
    let accesses = (0..trace.accesses()).map_while(|at| trace.access(at));
    accesses.map(|access| (access.key.index, letter(&access))).collect()
}

#[test]
fn a_call_touches_the_pages_of_what_it_returned() {
    let mut names = Names::default();
    let [a, b] = ["/a", "/b"].map(|name| names.intern(name));
    let on = |op, file, offset, len| Record { file, ..Record::new(0, op).range(offset, len) };
    let records = [
        on(Op::Write, a, 4000, 200),
        on(Op::Read, b, 0, 4096),
        // Asked for four pages, got a byte more than one.
        Record { result: Some(4097), ..on(Op::Read, a, 8192, 16_384) },
        Record { result: Some(0), ..on(Op::Read, a, 8192, 16_384) },
        Record { result: Some(-5), ..on(Op::Write, a, 0, 4096) },
        Record { flags: Flags::DIRECT, ..on(Op::Write, a, 0, 4096) },
        on(Op::Write, a, u64::MAX - 9000, 5),
        on(Op::Write, a, 0, 2 << 30),
        // On no known file.
        Record::new(0, Op::Write).range(0, 10),
    ];
    let trace = pages_of(TraceKind::Syscall, &names, &records);
    // The first file has four pages, so the second begins at 4.
    assert_eq!(all(&trace), [(0, 'w'), (1, 'w'), (4, 'r'), (2, 'r'), (3, 'r')]);
    assert_eq!((trace.left_out(), trace.reads(), trace.working_set_pages()), (5, 3, 5));
    assert_eq!(trace.end_bytes(), 5 * 4096);
}

#[test]
fn a_device_keeps_its_addresses_and_the_next_one_follows() {
    let on =
        |device, page: u64| Record { device, ..Record::new(0, Op::Write).range(page * 4096, 1) };
    let trace = pages_of(TraceKind::Block, &Names::default(), &[on(1, 7), on(2, 3), on(1, 0)]);
    assert_eq!(all(&trace), [(7, 'w'), (8 + 3, 'w'), (0, 'w')]);
}

#[test]
fn a_block_trace_keeps_the_device_s_addresses_whatever_the_files() {
    let mut names = Names::default();
    let [a, b] = ["/a", "/b"].map(|name| names.intern(name));
    let on = |file, page: u64| Record { file, ..Record::new(0, Op::Write).range(page * 4096, 1) };
    let trace = pages_of(TraceKind::Block, &names, &[on(a, 7), on(b, 3), on(a, 0)]);
    assert_eq!(all(&trace), [(7, 'w'), (3, 'w'), (0, 'w')]);
}

/// Pages by name as a file system has them, on every operation in turn.
#[test]
fn lost_pages_are_those_of_a_plain_model() {
    for seed in 0..20 {
        let (names, records) = applications(seed, 3000);
        let trace = pages_of(TraceKind::Syscall, &names, &records);
        // By name: the pages of the cache that never evicts, and the file's place, guessed from the
        // first access that the trace makes to it.
        let mut files: BTreeMap<_, BTreeMap<u64, u64>> = BTreeMap::new();
        let mut at = 0;
        let (mut expected, mut next) = (Vec::new(), trace.next_uses());
        for record in &records {
            match record.op {
                Op::Read | Op::Write => {
                    let first = record.offset_bytes / 4096;
                    let last = (record.offset_bytes + record.len_bytes - 1) / 4096;
                    for page in first..=last {
                        let cached = files.entry(record.file).or_default();
                        if let Some(before) = cached.insert(page, at) {
                            expected.push((before, at));
                        }
                        at += 1;
                    }
                }
                Op::Unlink => drop(files.remove(&record.file)),
                Op::Truncate => {
                    let first = record.size_bytes.unwrap_or(0).div_ceil(4096);
                    files.entry(record.file).or_default().retain(|page, _| *page < first);
                }
                Op::Rename if record.target != record.file => {
                    let moved = files.remove(&record.file).unwrap_or_default();
                    files.insert(record.target, moved);
                }
                _ => {}
            }
        }
        assert_eq!(at as usize, trace.accesses());
        let mut uses = vec![u64::MAX; trace.accesses()];
        expected.iter().for_each(|(before, at)| uses[*before as usize] = *at);
        let wrong = uses.iter().zip(&mut next).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "seed {seed}: next use of this access");
    }
}

#[test]
fn a_dense_trace_has_the_same_pages_in_the_same_order() {
    let far = 1 << 26;
    let mut trace = of_pages(&[5, -(far + 3), 9, far + 4, 5]);
    let next = trace.next_uses();
    trace.make_dense();
    assert_eq!(all(&trace), [(5, 'r'), (1027, 'w'), (9, 'r'), (1028, 'r'), (5, 'r')]);
    assert_eq!((trace.end_bytes(), trace.working_set_pages()), (1029 * 4096, 4));
    assert_eq!(trace.next_uses(), next);
}

#[test]
fn a_trace_without_accesses_is_refused() {
    let mut gather = PageGather::new(TraceKind::Syscall);
    let open = Record::new(0, Op::Open);
    gather.record(&Names::default(), &open).unwrap();
    let error = gather.finish().unwrap_err().to_string();
    assert!(error.contains("reads and writes nothing; "), "{error}");
}
