//! Reads and synchronous writes of one file, as AndroBench's file test has them.
//!
//! The file is 16 MiB, written in order beforehand, or new. Overwrites find it in the cache, reads
//! do not. Operations do not check contents; the reads of `open` compare the file with the written
//! data.

use crate::latency::Timer;
use rand_chacha::ChaCha8Rng;

use super::{Parameters, Workload, below, noise, not_open, random};
use crate::bench::target::{Open, Target, TargetFile};
use crate::error::{LabError, Result};

/// Size of the file in bytes.
const FILE_BYTES: u64 = 16 << 20;
/// Size of the file that is written at random places while it is new.
const SPARSE_BYTES: u64 = 32 << 20;
const MIB: u64 = 1 << 20;
const PATH: &str = "/data.bin";

/// Pattern in which a file is overwritten.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    bytes: u64,
    random: bool,
    datasync: bool,
}

pub(super) const RANDOM_FSYNC: Shape = Shape { bytes: 4096, random: true, datasync: false };
pub(super) const RANDOM_FDATASYNC: Shape = Shape { bytes: 4096, random: true, datasync: true };
pub(super) const SEQUENTIAL_FSYNC: Shape = Shape { bytes: 4096, random: false, datasync: false };
pub(super) const SEQUENTIAL_256K_FSYNC: Shape =
    Shape { bytes: 256 << 10, random: false, datasync: false };

/// Writes the file in order, 1 MiB at a time, and makes it durable.
fn write_file(target: &dyn Target, seed: u64) -> Result<()> {
    let mut rng = random(seed);
    let mut file = target.open(PATH, Open::New)?;
    for mib in 0..FILE_BYTES / MIB {
        file.write_at(mib * MIB, &noise(&mut rng, MIB as usize))?;
    }
    file.sync(false)?;
    file.drop_cache()
}

/// Reads the whole file, comparing it with what [`write_file`] wrote.
fn read_file(file: &mut dyn TargetFile, seed: u64) -> Result<()> {
    let mut rng = random(seed);
    let mut bytes = vec![0; MIB as usize];
    for mib in 0..FILE_BYTES / MIB {
        let got = file.read_at(mib * MIB, &mut bytes)?;
        if got != bytes.len() || bytes != noise(&mut rng, MIB as usize) {
            return Err(LabError::wrong_data(format!("{PATH} differs in MiB {mib}")));
        }
    }
    Ok(())
}

struct Overwrite {
    shape: Shape,
    seed: u64,
    /// Of the places.
    rng: ChaCha8Rng,
    /// Of the contents: other bytes with every step.
    noise: ChaCha8Rng,
    bytes: Vec<u8>,
    file: Option<Box<dyn TargetFile>>,
}

pub(super) fn overwrite(p: &Parameters, _: u64, shape: Shape) -> Box<dyn Workload> {
    let mut rng = random(p.seed ^ 0x6f76_6572);
    let bytes = noise(&mut rng, shape.bytes as usize);
    let noise = random(p.seed ^ 0x6e6f_6973);
    Box::new(Overwrite { shape, seed: p.seed, rng, noise, bytes, file: None })
}

impl Workload for Overwrite {
    fn prepare(&mut self, target: &dyn Target) -> Result<()> {
        write_file(target, self.seed)
    }

    fn open(&mut self, target: &dyn Target) -> Result<()> {
        let mut file = target.open(PATH, Open::Existing)?;
        read_file(&mut *file, self.seed)?;
        self.file = Some(file);
        Ok(())
    }

    fn step(&mut self, target: &dyn Target, step: u64, timer: &mut Timer) -> Result<()> {
        let places = FILE_BYTES / self.shape.bytes;
        let place = if self.shape.random { below(&mut self.rng, places) } else { step % places };
        self.bytes = noise(&mut self.noise, self.bytes.len());
        let file = self.file.as_mut().ok_or_else(not_open)?;
        file.write_at(place * self.shape.bytes, &self.bytes)?;
        timer.time(|| target.now_ns(), || file.sync(self.shape.datasync))
    }

    fn close(&mut self, _: &dyn Target) -> Result<()> {
        self.file = None;
        Ok(())
    }
}

/// Writes to a new file, each synced: at its end, or with `places` at random.
struct Grow {
    bytes: Vec<u8>,
    places: Option<ChaCha8Rng>,
    file: Option<Box<dyn TargetFile>>,
}

pub(super) fn append_256k(p: &Parameters, _: u64) -> Box<dyn Workload> {
    Box::new(Grow { bytes: noise(&mut random(p.seed), 256 << 10), places: None, file: None })
}

pub(super) fn sparse(p: &Parameters, _: u64) -> Box<dyn Workload> {
    let mut rng = random(p.seed);
    Box::new(Grow { bytes: noise(&mut rng, 4096), places: Some(rng), file: None })
}

impl Workload for Grow {
    fn prepare(&mut self, _: &dyn Target) -> Result<()> {
        Ok(())
    }

    fn open(&mut self, target: &dyn Target) -> Result<()> {
        self.file = Some(target.open("/seq.bin", Open::New)?);
        Ok(())
    }

    fn step(&mut self, target: &dyn Target, step: u64, timer: &mut Timer) -> Result<()> {
        let file = self.file.as_mut().ok_or_else(not_open)?;
        let len = self.bytes.len() as u64;
        let places = self.places.as_mut();
        let place = places.map_or(step, |places| below(places, SPARSE_BYTES / len));
        file.write_at(place * len, &self.bytes)?;
        timer.time(|| target.now_ns(), || file.sync(false))
    }

    fn close(&mut self, _: &dyn Target) -> Result<()> {
        self.file = None;
        Ok(())
    }
}

struct Read {
    random: bool,
    seed: u64,
    rng: ChaCha8Rng,
    bytes: Vec<u8>,
    file: Option<Box<dyn TargetFile>>,
}

pub(super) fn random_read(p: &Parameters, _: u64) -> Box<dyn Workload> {
    let rng = random(p.seed ^ 0x7265_6164);
    Box::new(Read { random: true, seed: p.seed, rng, bytes: vec![0; 4096], file: None })
}

pub(super) fn sequential_read(p: &Parameters, _: u64) -> Box<dyn Workload> {
    let rng = random(p.seed);
    Box::new(Read { random: false, seed: p.seed, rng, bytes: vec![0; 256 << 10], file: None })
}

impl Workload for Read {
    fn prepare(&mut self, target: &dyn Target) -> Result<()> {
        write_file(target, self.seed)
    }

    fn open(&mut self, target: &dyn Target) -> Result<()> {
        self.file = Some(target.open(PATH, Open::Existing)?);
        Ok(())
    }

    fn step(&mut self, target: &dyn Target, step: u64, timer: &mut Timer) -> Result<()> {
        let len = self.bytes.len() as u64;
        let places = FILE_BYTES / len;
        let place = if self.random { below(&mut self.rng, places) } else { step % places };
        let file = self.file.as_mut().ok_or_else(not_open)?;
        let got = timer.time(|| target.now_ns(), || file.read_at(place * len, &mut self.bytes))?;
        if got as u64 != len {
            return Err(LabError::wrong_data(format!("{PATH} ends in a read of {len} bytes")));
        }
        Ok(())
    }

    fn close(&mut self, _: &dyn Target) -> Result<()> {
        self.file = None;
        Ok(())
    }
}
