//! Operations on a log and the array of bytes that they should give; a disk that loses power.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::sync::Arc;

use parking_lot::Mutex;
use syncline_flashlite::{Log, Options, Result, Storage};
use syncline_testkit::{Random, fill};

/// Unit that a device writes atomically, in bytes.
pub const SECTOR: u64 = 512;

/// Small segments, so that short runs fill several.
pub const SMALL: Options = Options {
    segment_bytes: 64 << 10,
    page_bytes: 4 << 10,
    align_from_bytes: 8 << 10,
    sync_every_bytes: 200 << 10,
    tags_at_once: 1,
};

/// As SMALL, with segments in which data of 128 KiB start at a multiple of that.
pub const LARGE: Options = Options { segment_bytes: 8 << 20, ..SMALL };

/// An empty log of a version of the format: 1 is what earlier releases made.
pub fn create(storage: Arc<dyn Storage>, options: Options, version: u32) -> Log {
    if version == 2 {
        return Log::create(storage, options).unwrap();
    }
    let mut header = vec![0; options.page_bytes as usize];
    header[..8].copy_from_slice(b"flashlit");
    for (field, value) in
        [version, options.segment_bytes, options.page_bytes].into_iter().enumerate()
    {
        header[8 + 4 * field..][..4].copy_from_slice(&value.to_le_bytes());
    }
    let sum = syncline_base::crc32c(&header[..60]);
    header[60..64].copy_from_slice(&sum.to_le_bytes());
    storage.write_at(&[IoSlice::new(&header)], 0).unwrap();
    storage.sync_data().unwrap();
    let log = Log::open(storage, options).unwrap();
    assert_eq!((log.info().version, log.opened().dropped.is_some()), (version, false));
    log
}

/// A storage that tells of each read and write before it passes it on.
pub struct Watched<S, F> {
    pub below: Arc<S>,
    /// Is told offset and length in bytes, and whether it is a write.
    pub watch: F,
}

impl<S: Storage, F: Fn(u64, u64, bool) + Send + Sync> Storage for Watched<S, F> {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        (self.watch)(offset, into.len() as u64, false);
        self.below.read_at(into, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        (self.watch)(offset, parts.iter().map(|part| part.len() as u64).sum(), true);
        self.below.write_at(parts, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.below.set_len(len_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.below.sync_data()
    }
}

/// One call.
#[derive(Clone, Debug)]
pub enum Op {
    /// Bytes of the stream `seed` at an offset.
    Write {
        offset: u64,
        len: u64,
        seed: u64,
    },
    SetLen(u64),
    Sync,
}

/// A random call on a file of about `size` bytes.
pub fn random_op(random: &mut Random, size: u64) -> Op {
    match random.below(12) {
        0 => Op::Sync,
        1 if random.one_in(3) => Op::SetLen(random.below(size)),
        _ => {
            let len = match random.below(6) {
                0 => 1 + random.below(100),
                1 => 20_000 + random.below(60_000),
                2 => 512 * (1 + random.below(8)),
                _ => 4096,
            };
            let offset = random.below(size);
            let offset = if random.one_in(2) { offset / 4096 * 4096 } else { offset };
            Op::Write { offset, len, seed: random.bits() }
        }
    }
}

/// The bytes of a write.
pub fn data(seed: u64, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    fill(seed, offset, &mut bytes);
    bytes
}

/// Applies a call to the array.
pub fn apply_model(model: &mut Vec<u8>, op: &Op) {
    match *op {
        Op::Write { offset, len, seed } => {
            let end = (offset + len) as usize;
            if model.len() < end {
                model.resize(end, 0);
            }
            model[offset as usize..end].copy_from_slice(&data(seed, offset, len));
        }
        Op::SetLen(len) => model.resize(len as usize, 0),
        Op::Sync => {}
    }
}

/// Applies a call to the log.
pub fn apply(log: &Log, op: &Op) -> Result<()> {
    match *op {
        Op::Write { offset, len, seed } => log.write_at(&data(seed, offset, len), offset),
        Op::SetLen(len) => log.set_len(len),
        Op::Sync => log.sync_data(),
    }
}

/// The whole file.
pub fn contents(log: &Log) -> Vec<u8> {
    let mut bytes = vec![0xEE; log.len() as usize];
    assert_eq!(log.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// A write or a length that no sync has covered.
#[derive(Clone)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    SetLen(u64),
    Punch { offset: u64, len: u64 },
}

#[derive(Default)]
struct State {
    now: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
    syncs: u64,
    /// Calls until one fails; nothing: none does.
    fail_in: Option<u64>,
    /// True if only one call fails, with "no space"; otherwise all later calls fail too.
    full: bool,
}

/// A disk in memory that remembers what is durable.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

fn put(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { offset, bytes: new } => {
            let end = *offset as usize + new.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*offset as usize..end].copy_from_slice(new);
        }
        Change::SetLen(len) => bytes.resize(*len as usize, 0),
        Change::Punch { offset, len } => {
            let end = ((offset + len) as usize).min(bytes.len());
            if let Some(part) = bytes.get_mut(*offset as usize..end) {
                part.fill(0);
            }
        }
    }
}

/// A change in parts that a device writes at once.
fn sectors(change: &Change, into: &mut Vec<Change>) {
    let Change::Write { offset, bytes } = change else { return into.push(change.clone()) };
    let (mut at, mut left) = (*offset, bytes.as_slice());
    while !left.is_empty() {
        let len = ((SECTOR - at % SECTOR) as usize).min(left.len());
        into.push(Change::Write { offset: at, bytes: left[..len].to_vec() });
        at += len as u64;
        left = &left[len..];
    }
}

impl Disk {
    /// With these bytes, all durable.
    pub fn new(bytes: Vec<u8>) -> Disk {
        Disk(Arc::new(Mutex::new(State { durable: bytes.clone(), now: bytes, ..State::default() })))
    }

    pub fn now(&self) -> Vec<u8> {
        self.0.lock().now.clone()
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    /// The call after `calls` more fails, and all later ones; if `full`, that one alone.
    pub fn fail_in(&self, calls: u64, full: bool) {
        let mut state = self.0.lock();
        state.fail_in = Some(calls);
        state.full = full;
    }

    /// Returns the bytes that a power cut now leaves. Of the writes between two syncs any sectors
    /// may be there, and of the lengths, in any order: all up to some point, a random choice, or
    /// all but a few.
    pub fn cut(&self, random: &mut Random) -> Vec<u8> {
        let state = self.0.lock();
        let mut all = Vec::new();
        state.changes.iter().for_each(|change| sectors(change, &mut all));
        let mut bytes = state.durable.clone();
        let style = random.below(4);
        let kept = random.index(all.len() + 1);
        let skipped: BTreeSet<usize> = (0..3).map(|_| random.index(all.len())).collect();
        let share = 1 + random.below(4);
        // Two writes of one sector: the later one wins if both are there; a device may also keep
        // the earlier one alone, which the choice includes.
        for (at, change) in all.iter().enumerate() {
            let there = match style {
                0 => at < kept,
                1 => random.one_in(share),
                2 => !skipped.contains(&at),
                _ => at < kept || random.one_in(8),
            };
            if there {
                put(&mut bytes, change);
            }
        }
        bytes
    }

    fn call(&self, state: &mut State) -> io::Result<()> {
        match state.fail_in {
            Some(0) if state.full => {
                state.fail_in = None;
                Err(io::ErrorKind::StorageFull.into())
            }
            Some(0) => Err(io::Error::other("the disk is broken")),
            Some(left) => {
                state.fail_in = Some(left - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = self.0.lock();
        if let Err(error) = self.call(&mut state) {
            // Half of a write that fails is there.
            if let Change::Write { offset, mut bytes } = change {
                bytes.truncate(bytes.len() / 2);
                let part = Change::Write { offset, bytes };
                put(&mut state.now, &part);
                state.changes.push(part);
            }
            return Err(error);
        }
        put(&mut state.now, &change);
        state.changes.push(change);
        Ok(())
    }
}

impl Storage for Disk {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.0.lock();
        let start = usize::try_from(offset).unwrap();
        let part = state.now.get(start..start + into.len());
        into.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.change(Change::Write { offset, bytes })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().now.len() as u64)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.change(Change::SetLen(len_bytes))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        self.call(&mut state)?;
        state.syncs += 1;
        state.durable = state.now.clone();
        state.changes.clear();
        Ok(())
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> io::Result<bool> {
        self.change(Change::Punch { offset, len: len_bytes })?;
        Ok(true)
    }
}
