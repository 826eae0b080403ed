//! Page accesses of captured programs, mixed to the counts of the informed-storage paper's Table 7.
//!
//! Sessions of about 200 accesses of one program follow each other, drawn from a seed: long
//! programs more often, and so that reads and writes come in the wanted proportion all along. A
//! program that ends begins again; after `fresh` it has new files then, as a player downloads
//! another video. Files lie one after the other in the order of first access. What exceeds a count
//! is left out at the end. Deterministic. Tested here.

use std::collections::HashMap;

use crate::evaluate::{DenseAddresses, PAGE_BYTES, PageGather, PageTrace};
use crate::replay::ReplayTrace;
use crate::trace::{Names, Op, Record, Sink, TraceKind};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use syncline_cache::Access;

use crate::error::{LabError, Result};

/// Accesses of a session.
const SESSION: u64 = 200;
/// Bytes of a file's number within a record of the mix: far above any captured file.
const FILE_BYTES: u64 = 1 << 40;

/// One workload of the paper, made of programs.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Name in the catalogue.
    pub name: &'static str,
    /// Page reads (Table 7).
    pub reads: u64,
    /// Page writes (Table 7).
    pub writes: u64,
    /// Captured programs.
    pub programs: &'static [&'static str],
    /// True if a program that begins again has new files.
    pub fresh: bool,
}

/// The paper's three workloads.
pub const MIXES: [Mix; 3] = [
    Mix {
        name: "w1",
        reads: 23_666,
        writes: 47_350,
        programs: &["chromium-cold", "chromium-warm"],
        fresh: false,
    },
    Mix { name: "w2", reads: 67, writes: 387_701, programs: &["video"], fresh: true },
    Mix {
        name: "w3",
        reads: 134_910,
        writes: 105_796,
        programs: &[
            "chromium-cold",
            "chromium-warm",
            "mail",
            "dpkg",
            "pocketdata",
            "rlbench",
            "video",
            "git",
        ],
        fresh: false,
    },
];

/// Accesses of one program: page, write.
struct Program {
    accesses: Vec<(u64, bool)>,
    at: usize,
    turn: u64,
    number: u64,
}

impl Program {
    fn new(number: u64, trace: &ReplayTrace) -> Result<Program> {
        let mut gather = PageGather::new(TraceKind::Syscall);
        for record in &trace.records {
            gather.record(&trace.names, record)?;
        }
        let pages = gather.finish()?;
        let accesses = (0..pages.accesses()).filter_map(|at| pages.access(at));
        let accesses = accesses.map(|access| (access.key.index, access.access == Access::Write));
        Ok(Program { accesses: accesses.collect(), at: 0, turn: 0, number })
    }

    fn next(&mut self, fresh: bool) -> (u64, u64, bool) {
        let (page, write) = self.accesses[self.at];
        let object = self.number << 32 | if fresh { self.turn } else { 0 };
        self.at += 1;
        if self.at == self.accesses.len() {
            (self.at, self.turn) = (0, self.turn + 1);
        }
        (object, page, write)
    }
}

impl Mix {
    /// The mix of this name.
    pub fn by_name(name: &str) -> Result<&'static Mix> {
        MIXES.iter().find(|mix| mix.name == name).ok_or_else(|| {
            let names: Vec<_> = MIXES.iter().map(|mix| mix.name).collect();
            LabError::Usage(format!("no mix `{name}`; choose of {}", names.join(", ")))
        })
    }

    /// The accesses, from a seed.
    pub fn pages(&self, seed: u64) -> Result<PageTrace> {
        let mut gather = PageGather::new(TraceKind::Block);
        for record in self.records(seed)? {
            gather.record(&Names::default(), &record)?;
        }
        gather.finish()
    }

    /// The accesses as block requests of one page, from a seed. Programs lie one after the other,
    /// without the room between them.
    pub fn records(&self, seed: u64) -> Result<impl Iterator<Item = Record>> {
        let mut accesses = Vec::new();
        self.play(seed, |offset_bytes, write| accesses.push((offset_bytes, write)))?;
        let mut dense = DenseAddresses::default();
        accesses.iter().for_each(|(offset_bytes, _)| dense.touch(*offset_bytes, PAGE_BYTES));
        dense.sort();
        Ok(accesses.into_iter().map(move |(offset_bytes, write)| {
            let op = if write { Op::Write } else { Op::Read };
            Record::new(0, op).range(dense.byte(offset_bytes), PAGE_BYTES)
        }))
    }

    /// Gives the offset in bytes of each page that is accessed, and whether it is written.
    fn play(&self, seed: u64, mut access: impl FnMut(u64, bool)) -> Result<()> {
        let shipped = ReplayTrace::shipped()?;
        let named = shipped.iter().filter(|trace| self.programs.contains(&trace.name.as_str()));
        let mut programs = named
            .enumerate()
            .map(|(number, trace)| Program::new(number as u64, trace))
            .collect::<Result<Vec<_>>>()?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut places = HashMap::new();
        let (mut reads, mut writes) = (0, 0);
        while reads < self.reads || writes < self.writes {
            let program = self.choose(&mut programs, &mut rng, reads, writes);
            for _ in 0..SESSION {
                let (object, page, write) = program.next(self.fresh);
                let (count, max) =
                    if write { (&mut writes, self.writes) } else { (&mut reads, self.reads) };
                if *count == max {
                    continue;
                }
                *count += 1;
                let next = places.len() as u64;
                let base = *places.entry(object).or_insert(next) * FILE_BYTES;
                access(base + page * PAGE_BYTES, write);
            }
        }
        Ok(())
    }

    /// A program for the next session: of three drawn by length the one that brings what is
    /// missing.
    fn choose<'a>(
        &self,
        programs: &'a mut [Program],
        rng: &mut ChaCha8Rng,
        reads: u64,
        writes: u64,
    ) -> &'a mut Program {
        let total: usize = programs.iter().map(|program| program.accesses.len()).sum();
        let mut draw = || {
            // The bias of the remainder is far below what sessions differ by.
            let mut at = (rng.next_u64() % total.max(1) as u64) as usize;
            programs.iter().position(|program| match at.checked_sub(program.accesses.len()) {
                None => true,
                Some(rest) => {
                    at = rest;
                    false
                }
            })
        };
        let drawn: Vec<usize> = (0..3).filter_map(|_| draw()).collect();
        let missing = |done: u64, wanted: u64| 1.0 - done as f64 / wanted.max(1) as f64;
        let wants_reads = missing(reads, self.reads) > missing(writes, self.writes);
        let share = |at: usize| {
            let part = programs[at].accesses.iter().filter(|(_, write)| *write != wants_reads);
            part.count() * 1_000_000 / programs[at].accesses.len()
        };
        let best = drawn.into_iter().max_by_key(|at| share(*at)).unwrap_or(0);
        &mut programs[best]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_have_the_counts_of_the_paper_and_repeat() {
        for mix in MIXES {
            let pages = mix.pages(1).unwrap();
            assert_eq!(pages.accesses() as u64, mix.reads + mix.writes, "{}", mix.name);
            let again = mix.pages(1).unwrap();
            assert_eq!(pages.working_set_pages(), again.working_set_pages(), "{}", mix.name);
        }
        assert!(Mix::by_name("w4").unwrap_err().to_string().contains("w1, w2, w3"));
    }
}
