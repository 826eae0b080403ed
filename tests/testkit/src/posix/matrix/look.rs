//! The ways to read a file, and the process that does.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use memmap2::{Mmap, MmapMut};
use rustix::fs::OFlags;

use super::queue::Uring;
use super::{FILE_BYTES, KEPT_BYTES, PAGE_BYTES};

/// Path of the file that the other process reads.
pub(super) const PATH: &str = "SYNCLINE_MATRIX_PATH";
/// Way in which it reads.
pub(super) const HOW: &str = "SYNCLINE_MATRIX_HOW";
/// Before each of its answers.
pub(super) const ANSWER: &str = "matrix: ";
/// The answer of one that cannot read that way.
const CANNOT: &str = "cannot";
/// Threads that read all the time.
const THREADS: usize = 2;

/// A way to read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// pread.
    Read,
    /// Loads through a shared mapping.
    Map,
    /// pread with O_DIRECT.
    Direct,
    /// Reads by io_uring, through the cache.
    Uring,
}

impl Look {
    /// All of them.
    pub const ALL: [Look; 4] = [Look::Read, Look::Map, Look::Direct, Look::Uring];

    /// In a message.
    pub fn name(self) -> &'static str {
        match self {
            Look::Read => "read",
            Look::Map => "mapping",
            Look::Direct => "O_DIRECT read",
            Look::Uring => "read by io_uring",
        }
    }
}

/// A digest of each page.
pub(super) fn digests(contents: &[u8]) -> Vec<u64> {
    let digest = |page: &[u8]| {
        // Always the same keys: two processes of one program agree.
        let mut hasher = DefaultHasher::new();
        hasher.write(page);
        hasher.finish()
    };
    contents.chunks(PAGE_BYTES).map(digest).collect()
}

/// The answer of [`other_process`].
pub(super) fn parse(answer: &str) -> Result<Option<[Vec<u64>; 2]>, String> {
    let answer = answer.trim();
    if answer == CANNOT {
        return Ok(None);
    }
    let list = |words: &str| -> Option<Vec<u64>> {
        words.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    let both = answer.split_once('|').and_then(|(old, new)| Some([list(old)?, list(new)?]));
    both.map(Some).ok_or_else(|| format!("the second process says: {answer}"))
}

/// A descriptor, and what it takes to read it.
struct Reader {
    file: File,
    means: Means,
}

enum Means {
    Plain,
    Map(Mmap),
    Uring(Box<Uring>),
}

impl Reader {
    fn open(path: &Path, look: Look) -> std::io::Result<Reader> {
        let flags = if look == Look::Direct { OFlags::DIRECT } else { OFlags::empty() };
        let flags = flags.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let means = match look {
            // SAFETY: bytes change under the map and are only ever copied out of it; what is read
            // while the file may be shorter is below KEPT_BYTES.
            Look::Map => Means::Map(unsafe { Mmap::map(&file) }?),
            Look::Uring => Means::Uring(Box::new(Uring::new()?)),
            Look::Read | Look::Direct => Means::Plain,
        };
        Ok(Reader { file, means })
    }

    fn read(&mut self, into: &mut [u8]) -> std::io::Result<()> {
        match &mut self.means {
            Means::Plain => self.file.read_exact_at(into, 0),
            Means::Map(map) => {
                into.copy_from_slice(&map[..into.len()]);
                Ok(())
            }
            Means::Uring(ring) => ring.read(&self.file, into),
        }
    }
}

/// Answers for a process that [`super::run`] started; returns false in any other process.
pub fn other_process() -> bool {
    let (Some(path), Ok(how)) = (std::env::var_os(PATH), std::env::var(HOW)) else { return false };
    let Some(look) = Look::ALL.into_iter().find(|look| look.name() == how) else { return false };
    if answer(&PathBuf::from(path), look).is_err() {
        // The pipe may also be closed.
        let _ = writeln!(std::io::stdout(), "{ANSWER}{CANNOT}");
    }
    true
}

fn answer(path: &Path, look: Look) -> std::io::Result<()> {
    let mut reader = Reader::open(path, look)?;
    let mut contents = MmapMut::map_anon(FILE_BYTES)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| read_on(path, look, &over));
        }
        let mut answer_all = || {
            for line in std::io::stdin().lock().lines() {
                line?;
                reader.read(&mut contents)?;
                let old = digests(&contents);
                Reader::open(path, look)?.read(&mut contents)?;
                let words = |digests: &[u64]| {
                    digests.iter().map(|digest| format!("{digest} ")).collect::<String>()
                };
                let (old, new) = (words(&old), words(&digests(&contents)));
                let mut out = std::io::stdout().lock();
                writeln!(out, "{ANSWER}{old}|{new}")?;
                out.flush()?;
            }
            Ok(())
        };
        let answered = answer_all();
        over.store(true, Ordering::Relaxed);
        answered
    })
}

/// Brings the file into whatever cache there is, until it is over. Reads that fail are no matter:
/// the file may be shorter for a moment.
fn read_on(path: &Path, look: Look, over: &AtomicBool) {
    let Ok(mut reader) = Reader::open(path, look) else { return };
    let Ok(mut contents) = MmapMut::map_anon(KEPT_BYTES - PAGE_BYTES) else { return };
    while !over.load(Ordering::Relaxed) {
        let _ = reader.read(&mut contents);
        std::hint::black_box(contents.first());
    }
}
