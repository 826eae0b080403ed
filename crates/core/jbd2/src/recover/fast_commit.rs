//! Fast commits of ext4: the area behind the ring, found, checked, and replaced by a transaction.
//!
//! ```text
//!   0 superblock | first .. end  ring | end  unused | end + 1 .. s_maxlen  fast commits
//!
//!   scan      whole fast commits of the transaction that the ring expects next
//!   (caller)  applies them, which needs a file system, and collects the blocks that change
//!   replace   [descriptors + copies, commit block] flush    a transaction of that number
//!             superblock: it starts the log, no fast commits    one sector
//!   recover   replays it as any other
//! ```
//!
//! Promises
//! - Before `replace` has written the superblock every recovery finds the fast commits again, after
//!   it none does: they are applied once and whole. The feature goes in the same sector, because
//!   e2fsck 1.47 loses the log where a HEAD is not of the transaction that it expects.
//! - A torn last fast commit is dropped: it was not acknowledged. A torn one with whole ones behind
//!   it is damage.
//! - Bounds: each block of the area is read twice; memory is the area.
//!
//! Linux refuses the mount where the first fast commit is torn; here it is dropped as any other.
//! Tested in `tests/it/fast_commit.rs`.

use std::sync::Arc;

use syncline_device::{BlockDevice, Plug};
use syncline_ondisk::fast_commit::{self, HEAD, TAIL};

use super::{LogReader, finish, scan};
use crate::journal::Journal;
use crate::log_superblock::LogSuperblock;
use crate::log_writer::LOG;
use crate::record::Record;
use crate::transaction::{Base, Copy, IN_PLACE};
use crate::{JournalError, LogMap};

/// The fast commits of a log that [`Journal::recover`] left to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCommits {
    /// Number of fast commits.
    pub count: u32,
    /// Blocks of the area, up to the end of the last whole one.
    blocks: Vec<Vec<u8>>,
}

impl FastCommits {
    /// All tags in their order.
    pub fn frames(&self) -> impl Iterator<Item = fast_commit::Frame<'_>> {
        self.blocks.iter().flat_map(|block| fast_commit::frames(block))
    }
}

/// Search for the end of an area.
struct Search {
    tid: u32,
    crc: u32,
    /// Feature bits of HEADs in the fast commit that is being read.
    features: u32,
}

/// A block of the area.
enum Seen {
    /// Ends inside of a fast commit.
    Inside,
    /// Has this many bytes of whole fast commits, of which so many end in it.
    Whole { commits: u32, bytes: usize },
    /// Ends in something that no fast commit of this transaction has.
    End,
}

impl Search {
    fn block(&mut self, bytes: &[u8]) -> Result<Seen, JournalError> {
        let mut seen = Seen::Inside;
        let mut frames = fast_commit::frames(bytes);
        for frame in frames.by_ref() {
            if frame.tag == 0 || frame.tid().is_some_and(|tid| tid != self.tid) {
                return Ok(if matches!(seen, Seen::Inside) { Seen::End } else { seen });
            }
            self.features |= frame.features();
            self.crc = frame.checksum(self.crc);
            if frame.tag != TAIL {
                continue;
            }
            if !frame.seals(self.crc) {
                return Ok(if matches!(seen, Seen::Inside) { Seen::End } else { seen });
            }
            if self.features != 0 {
                return Err(JournalError::Unsupported {
                    feature: format!("fast_commit with features {:#x}", self.features),
                    next_step: "mount it once with the Linux that wrote it",
                });
            }
            self.crc = 0;
            let before = if let Seen::Whole { commits, .. } = seen { commits } else { 0 };
            seen = Seen::Whole { commits: before + 1, bytes: frame.offset + frame.bytes.len() };
        }
        let ended = matches!(seen, Seen::Whole { .. });
        Ok(if frames.is_broken() && !ended { Seen::End } else { seen })
    }
}

/// Reads the area. `expected` is the sequence after the last transaction of the ring.
pub(super) fn scan(
    reader: &mut LogReader<'_>,
    superblock: &LogSuperblock,
    expected: u32,
) -> Result<Option<FastCommits>, JournalError> {
    let Some(area) = superblock.fast_commit_area() else { return Ok(None) };
    let mut found = FastCommits { count: 0, blocks: Vec::new() };
    let (mut blocks, mut whole) = (Vec::new(), 0);
    let mut search = Search { tid: expected, crc: 0, features: 0 };
    for log_block in area.clone() {
        let bytes = reader.read(log_block)?;
        let first = fast_commit::frames(bytes).next();
        if log_block == area.start && first.is_none_or(|frame| frame.tag != HEAD) {
            break;
        }
        let seen = search.block(bytes)?;
        blocks.push(bytes.to_vec());
        match seen {
            Seen::Inside => {}
            Seen::Whole { commits, bytes } => {
                found.count += commits;
                whole = blocks.len();
                if let Some(last) = blocks.last_mut() {
                    last.truncate(bytes);
                }
            }
            Seen::End => break,
        }
    }
    refuse_newer(reader, (area.start + whole as u32, area.end), expected)?;
    blocks.truncate(whole);
    found.blocks = blocks;
    Ok((found.count > 0).then_some(found))
}

/// Behind the last whole fast commit there is no other of the same transaction.
fn refuse_newer(
    reader: &mut LogReader<'_>,
    (from, end): (u32, u32),
    tid: u32,
) -> Result<(), JournalError> {
    let mut search = Search { tid, crc: 0, features: 0 };
    for log_block in from..end {
        match search.block(reader.read(log_block)?)? {
            Seen::Inside => {}
            Seen::Whole { .. } => {
                let detail = format!("a fast commit of transaction {tid} before it is damaged");
                return Err(JournalError::corrupt(log_block, detail));
            }
            Seen::End => search.crc = 0,
        }
    }
    Ok(())
}

impl Journal {
    /// The fast commits that [`Journal::recover`] counted and left.
    ///
    /// # Errors
    /// As [`Journal::recover`].
    pub fn fast_commits(
        dev: &dyn BlockDevice,
        log: &LogMap,
    ) -> Result<Option<FastCommits>, JournalError> {
        let superblock = LogSuperblock::read(dev, log)?;
        if superblock.start() == 0 || superblock.is_packed() {
            return Ok(None);
        }
        let mut reader = LogReader::new(dev, log, &superblock);
        let end = scan::scan(&mut reader, &superblock, false)?.end;
        scan(&mut reader, &superblock, end)
    }

    /// Empties a recovered log with its fast commits, which are lost. For a copy of the image in
    /// which they are applied.
    ///
    /// # Errors
    /// `Io`.
    pub fn drop_fast_commits(dev: &dyn BlockDevice, log: &LogMap) -> Result<(), JournalError> {
        let mut superblock = LogSuperblock::read(dev, log)?;
        superblock.drop_fast_commits();
        let next = superblock.sequence().wrapping_add(1);
        finish(dev, log, &mut superblock, next)
    }

    /// Writes the blocks that the fast commits of a recovered log change as a transaction in their
    /// stead. On return it is durable, and [`Journal::recover`] replays it. `now_ns` is the time of
    /// the commit.
    ///
    /// # Errors
    /// `TooLarge` if the log cannot hold them and `Usage` if it has no fast commits, with nothing
    /// written; `Io`, after which recovery finds the fast commits or the transaction.
    pub fn replace_fast_commits(
        dev: &dyn BlockDevice,
        log: &LogMap,
        blocks: Vec<(u64, Arc<[u8]>)>,
        now_ns: u64,
    ) -> Result<(), JournalError> {
        let mut superblock = LogSuperblock::read(dev, log)?;
        // Recovery left the ring empty, with its start in front.
        if superblock.start() != superblock.first() || superblock.fast_commit_area().is_none() {
            return Err(JournalError::Usage("fast commits of a log that was not recovered"));
        }
        let copy = |(block, image)| Copy {
            block,
            image,
            buffer: None,
            origin: IN_PLACE,
            base: Base::Unknown,
        };
        let copies: Vec<Copy> = blocks.into_iter().map(copy).collect();
        let (format, sequence) = (superblock.format(), superblock.sequence());
        let record = Record { format, sequence, commit_ns: now_ns, copies: &copies, revokes: &[] };
        let body = record.body()?;
        let ring = superblock.end() - superblock.first();
        if body.len() as u64 + 2 >= u64::from(ring) {
            let credits = u32::try_from(copies.len()).unwrap_or(u32::MAX);
            return Err(JournalError::TooLarge { credits, limit: ring });
        }
        let commit_block = record.commit_block(&body)?;
        // The ring is seen as empty, whatever it holds, until the superblock names the next block.
        let zeros = vec![0; format.layout.block_size];
        dev.write(log.offset(superblock.first())?, &zeros, LOG)?;
        dev.flush(LOG)?;
        let mut plug = Plug::new();
        let start = superblock.first() + 1;
        let blocks = body.iter().map(|block| block.bytes()).chain([&*commit_block]);
        for (at, bytes) in (start..).zip(blocks) {
            plug.write(log.offset(at)?, bytes, LOG);
        }
        plug.submit(dev)?;
        dev.flush(LOG)?;
        superblock.drop_fast_commits();
        superblock.set_start(sequence, start);
        superblock.write(dev, log)?;
        Ok(dev.flush(LOG)?)
    }
}
