//! Several applications at once: at each synchronous call there is dirty data of others.
//!
//! Each step appends 8 KiB to a log and makes a 4 KiB file that nobody syncs, then, in turn,
//! commits a SQLite transaction or overwrites 4 KiB of a file and calls fsync. What the fsync drags
//! along is the figure of interest.

use crate::latency::Timer;
use rand_chacha::ChaCha8Rng;
use rusqlite::Connection;

use super::{Parameters, Workload, below, noise, not_open, random, sqlite};
use crate::bench::target::{Open, Target, TargetFile};
use crate::error::Result;

/// Size of the overwritten file in bytes.
const FILE_BYTES: u64 = 4 << 20;
const LOG_BYTES: u64 = 8192;
const FILE: &str = "/document.bin";

struct Mixed {
    parameters: Parameters,
    rng: ChaCha8Rng,
    bytes: Vec<u8>,
    opened: Option<Opened>,
}

struct Opened {
    db: Connection,
    file: Box<dyn TargetFile>,
    log: Box<dyn TargetFile>,
}

pub(super) fn mixed(p: &Parameters, _: u64) -> Box<dyn Workload> {
    let mut rng = random(p.seed);
    let bytes = noise(&mut rng, LOG_BYTES as usize);
    Box::new(Mixed { parameters: p.clone(), rng, bytes, opened: None })
}

impl Workload for Mixed {
    fn prepare(&mut self, target: &dyn Target) -> Result<()> {
        target.mkdir("/unsynced")?;
        let mut file = target.open(FILE, Open::New)?;
        file.write_at(0, &noise(&mut self.rng, FILE_BYTES as usize))?;
        sqlite::make_table(target, &self.parameters)
    }

    fn open(&mut self, target: &dyn Target) -> Result<()> {
        let mut file = target.open(FILE, Open::Existing)?;
        file.read_at(0, &mut vec![0; FILE_BYTES as usize])?;
        let log = target.open("/unsynced.log", Open::New)?;
        let db = sqlite::connect(target, &self.parameters)?;
        self.opened = Some(Opened { db, file, log });
        Ok(())
    }

    fn step(&mut self, target: &dyn Target, step: u64, timer: &mut Timer) -> Result<()> {
        let opened = self.opened.as_mut().ok_or_else(not_open)?;
        opened.log.write_at(step * LOG_BYTES, &self.bytes)?;
        let mut new = target.open(&format!("/unsynced/f{step:05}"), Open::New)?;
        new.write_at(0, &self.bytes[..4096])?;
        if step.is_multiple_of(2) {
            let (db, rng) = (&opened.db, &mut self.rng);
            return timer.time(|| target.now_ns(), || sqlite::insert_row(db, rng, step as i64 + 1));
        }
        let place = below(&mut self.rng, FILE_BYTES / 4096);
        opened.file.write_at(place * 4096, &self.bytes[4096..])?;
        timer.time(|| target.now_ns(), || opened.file.sync(false))
    }

    fn close(&mut self, _: &dyn Target) -> Result<()> {
        self.opened.take().map_or(Ok(()), |opened| sqlite::close(opened.db))
    }
}
