//! One file that one program makes and writes while others read and map it.
//!
//! After a write every later read sees its data, through descriptors and mappings that were opened
//! before or after it. A file system whose writes bypass a cache that readers fill meanwhile may
//! leave an old page there.

// Maps the file that it tests.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Random;
use memmap2::Mmap;

const FILE_BYTES: usize = 64 << 10;
/// Longest write, in bytes.
const PIECE_BYTES: u64 = 9000;
/// Readers that read all the time.
const READERS: u64 = 2;
/// Rounds after which the file is opened once more, and the oldest of those closed.
const OPEN_ROUNDS: u64 = 64;
const OPEN_MAX: usize = 4;

/// A descriptor for reading, and what it maps.
struct Reader {
    file: File,
    map: Mmap,
}

impl Reader {
    fn open(path: &Path) -> Result<Reader, String> {
        let opened = File::open(path).and_then(|file| {
            // SAFETY: the file stays as long as it is made here, so no access is behind its end.
            // Bytes change under the map, and are only ever copied out of it.
            let map = unsafe { Mmap::map(&file) }?;
            Ok(Reader { file, map })
        });
        opened.map_err(|err| format!("{}: {err}", path.display()))
    }

    /// The whole file by read, and by the map.
    fn contents(&self) -> Result<[Vec<u8>; 2], String> {
        let mut read = vec![0; FILE_BYTES];
        self.file.read_exact_at(&mut read, 0).map_err(|err| err.to_string())?;
        Ok([read, self.map.to_vec()])
    }
}

/// Makes the file at `path`, which must not exist, and writes it `rounds` times.
pub fn run(path: &Path, seed: u64, rounds: u64) -> Result<(), String> {
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).open(path);
    let writer = made.map_err(|err| format!("{}: {err}", path.display()))?;
    let mut model = vec![0; FILE_BYTES];
    writer.write_all_at(&model, 0).map_err(|err| err.to_string())?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        let readers = (0..READERS).map(|nr| scope.spawn(move || read_on(path, seed + nr, over)));
        let readers: Vec<_> = readers.collect();
        let written = write(path, &writer, &mut model, &mut Random::new(seed), rounds);
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().map_err(|_| "a reader panicked".to_owned())??;
        }
        written
    })?;
    drop(writer);
    seen(&Reader::open(path)?, &model, "after the last close")
}

fn write(
    path: &Path,
    writer: &File,
    model: &mut [u8],
    rng: &mut Random,
    rounds: u64,
) -> Result<(), String> {
    let mut readers = vec![Reader::open(path)?];
    for round in 0..rounds {
        let from = rng.below(FILE_BYTES as u64);
        let len = (rng.below(PIECE_BYTES) + 1).min(FILE_BYTES as u64 - from) as usize;
        let piece = &mut model[from as usize..][..len];
        piece.fill(round as u8);
        writer.write_all_at(piece, from).map_err(|err| err.to_string())?;
        for reader in &readers {
            seen(reader, model, &format!("seed's round {round}, {len} bytes at {from}"))?;
        }
        if round % OPEN_ROUNDS == OPEN_ROUNDS - 1 {
            readers.push(Reader::open(path)?);
            if readers.len() > OPEN_MAX {
                readers.remove(0);
            }
        }
    }
    Ok(())
}

fn seen(reader: &Reader, model: &[u8], when: &str) -> Result<(), String> {
    for (how, got) in ["read", "map"].into_iter().zip(reader.contents()?) {
        let differs = got.iter().zip(model).position(|(got, wanted)| got != wanted);
        if let Some(at) = differs {
            let (got, wanted) = (got[at], model[at]);
            return Err(format!("{when}: byte {at} by {how} is {got}, not {wanted}"));
        }
    }
    Ok(())
}

/// Brings pages of the file into whatever cache there is, until it is over.
fn read_on(path: &Path, seed: u64, over: &AtomicBool) -> Result<(), String> {
    let (reader, mut rng) = (Reader::open(path)?, Random::new(seed));
    let mut byte = [0];
    while !over.load(Ordering::Relaxed) {
        let at = rng.below(FILE_BYTES as u64);
        reader.file.read_exact_at(&mut byte, at).map_err(|err| err.to_string())?;
        std::hint::black_box(reader.map[at as usize]);
    }
    Ok(())
}
