//! Traces for tests.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use syncline_lab::evaluate::{PageGather, PageTrace};
use syncline_lab::trace::{Names, Op, Record, Sink, TraceKind};

/// The pages of these records.
pub fn pages_of(kind: TraceKind, names: &Names, records: &[Record]) -> PageTrace {
    let mut gather = PageGather::new(kind);
    for record in records {
        gather.record(names, record).expect("it takes everything");
    }
    gather.finish().expect("there are accesses")
}

/// A page trace: page numbers, negative for writes; page 0 is only read.
pub fn of_pages(pages: &[i64]) -> PageTrace {
    let record = |(at, page): (usize, &i64)| {
        let op = if *page < 0 { Op::Write } else { Op::Read };
        Record::new(at as u64 * 1000, op).range(page.unsigned_abs() * 4096, 4096)
    };
    let records: Vec<Record> = pages.iter().enumerate().map(record).collect();
    pages_of(TraceKind::Page, &Names::default(), &records)
}

/// Files of applications with reads, writes, syncs, deletions and renames, from a seed.
pub fn applications(seed: u64, calls: u64) -> (Names, Vec<Record>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut names = Names::default();
    let files: Vec<_> = (0..40).map(|n| names.intern(&format!("/data/app{n}"))).collect();
    let mut records = Vec::new();
    for at in 0..calls {
        let file = files[rng.random_range(0..files.len())];
        let record = Record { file, ..Record::new(at * 100_000, Op::Write) };
        let offset = rng.random_range(0..600_000u64);
        records.push(match rng.random_range(0..40) {
            0 => Record { op: Op::Unlink, ..record },
            1 => {
                let target = files[rng.random_range(0..files.len())];
                Record { op: Op::Rename, target, ..record }
            }
            2 => Record { op: Op::Truncate, size_bytes: Some(offset), ..record },
            3..=5 => Record { op: Op::Fsync, ..record },
            6..=18 => Record { op: Op::Read, ..record }.range(offset, rng.random_range(1..20_000)),
            _ => record.range(offset, rng.random_range(1..20_000)),
        });
    }
    (names, records)
}
