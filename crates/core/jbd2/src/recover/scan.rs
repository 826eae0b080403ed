//! First pass: where the log ends, and what its complete transactions hold.

use syncline_ondisk::jbd2::{BlockType, CommitBlock, Header, JournalChecksum, Tags, V1Checksum};

use super::LogReader;
use crate::log_superblock::LogSuperblock;
use crate::{JournalError, tid_geq};

/// A copy of a block in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogCopy {
    pub(super) block: u64,
    pub(super) sequence: u32,
    pub(super) log_block: u32,
    pub(super) checksum: u32,
    pub(super) escaped: bool,
}

/// Contents of the complete transactions. Lengths are bounded by the ring's: each entry stands for
/// a log block of its own.
#[derive(Default)]
pub(super) struct Scan {
    /// First sequence that is not complete.
    pub(super) end: u32,
    pub(super) transactions: u32,
    pub(super) dropped_torn: bool,
    /// In log order.
    pub(super) copies: Vec<LogCopy>,
    /// Log block and sequence of each revoke block.
    pub(super) revoke_blocks: Vec<(u32, u32)>,
}

impl Scan {
    /// Drops the last transaction, if it is `sequence`.
    pub(super) fn drop_last(&mut self, sequence: u32) -> bool {
        if self.transactions == 0 || self.end.wrapping_sub(1) != sequence {
            return false;
        }
        self.end = sequence;
        self.transactions -= 1;
        self.dropped_torn = true;
        self.cut();
        true
    }

    /// Ends before the transaction that has a revoke block.
    pub(super) fn end_before(&mut self, log_block: u32) {
        let found = self.revoke_blocks.iter().find(|(block, _)| *block == log_block);
        if let Some((_, sequence)) = found {
            self.transactions = self.transactions.saturating_sub(self.end.wrapping_sub(*sequence));
            self.end = *sequence;
            self.cut();
        }
    }

    /// Drops what belongs to transactions from `end` on.
    fn cut(&mut self) {
        let end = self.end;
        while self.copies.last().is_some_and(|c| tid_geq(c.sequence, end)) {
            self.copies.pop();
        }
        while self.revoke_blocks.last().is_some_and(|r| tid_geq(r.1, end)) {
            self.revoke_blocks.pop();
        }
    }
}

/// Result of the scan of a transaction.
enum Outcome {
    Complete,
    /// Async commit only: the commit block is there, what it covers is not.
    Torn,
    /// A stale commit block of an earlier use of the log.
    Stale,
}

/// Position of the scan.
struct Scanner<'r, 'd> {
    reader: &'r mut LogReader<'d>,
    scan: Scan,
    at: u32,
    /// Ring blocks passed; the log ends at the latest where it began.
    passed: u32,
    sequence: u32,
    last_commit_seconds: u64,
    /// A control block of the current transaction failed its checksum: it may be stale, torn or
    /// corrupt, which the commit block decides.
    suspicious: bool,
    crc: V1Checksum,
}

/// Follows the log from `s_start`. To salvage it, it ends before a transaction that is corrupt.
pub(super) fn scan(
    reader: &mut LogReader<'_>,
    superblock: &LogSuperblock,
    salvage: bool,
) -> Result<Scan, JournalError> {
    let sequence = superblock.sequence();
    let mut scanner = Scanner {
        reader,
        scan: Scan { end: sequence, ..Scan::default() },
        at: superblock.start(),
        passed: 0,
        sequence,
        last_commit_seconds: 0,
        suspicious: false,
        crc: V1Checksum::new(),
    };
    loop {
        match scanner.step() {
            Ok(true) => {}
            Ok(false) => break,
            Err(JournalError::Corrupt { .. }) if salvage => break,
            Err(err) => return Err(err),
        }
    }
    let mut scan = scanner.scan;
    scan.cut();
    Ok(scan)
}

impl Scanner<'_, '_> {
    /// Takes one control block with what belongs to it. False at the end of the log.
    fn step(&mut self) -> Result<bool, JournalError> {
        if self.passed >= self.reader.ring() {
            return Ok(false);
        }
        let format = self.reader.format;
        let log_block = self.at;
        let block = self.reader.read(log_block)?;
        let Some(Header { block_type, sequence }) = Header::decode(block) else {
            return Ok(false);
        };
        if sequence != self.sequence {
            return Ok(false);
        }
        match block_type {
            BlockType::Descriptor => {
                let holds = format.tail_holds(block);
                let block = block.to_vec();
                self.suspicious |= !holds;
                self.advance();
                self.descriptor(&block)
            }
            BlockType::Revoke => {
                self.suspicious |= !format.tail_holds(block);
                self.scan.dropped_torn = true;
                self.scan.revoke_blocks.push((log_block, sequence));
                self.advance();
                Ok(true)
            }
            BlockType::Commit => {
                let block = block.to_vec();
                self.advance();
                self.commit(log_block, &block)
            }
            _ => Ok(false),
        }
    }

    fn advance(&mut self) {
        self.at = self.reader.next(self.at);
        self.passed += 1;
    }

    fn descriptor(&mut self, block: &[u8]) -> Result<bool, JournalError> {
        self.scan.dropped_torn = true;
        let v1 = self.reader.format.layout.checksum == JournalChecksum::V1;
        if v1 {
            self.crc.update(block);
        }
        for tag in Tags::new(block, &self.reader.format.layout) {
            if self.passed >= self.reader.ring() {
                return Ok(false);
            }
            if v1 {
                let copy = self.reader.read(self.at)?;
                self.crc.update(copy);
            }
            self.scan.copies.push(LogCopy {
                block: tag.blocknr,
                sequence: self.sequence,
                log_block: self.at,
                checksum: tag.checksum,
                escaped: tag.escaped,
            });
            self.advance();
        }
        Ok(true)
    }

    fn commit(&mut self, log_block: u32, block: &[u8]) -> Result<bool, JournalError> {
        let seconds = CommitBlock::decode(block).map_or(0, |c| c.commit_sec);
        if self.scan.end != self.sequence {
            // A torn transaction that is not the last: it was acknowledged, its successor relies on
            // it.
            return Err(self.corrupt(log_block, self.scan.end));
        }
        match self.classify(log_block, block, seconds)? {
            Outcome::Stale => {
                self.scan.dropped_torn = false;
                return Ok(false);
            }
            Outcome::Torn => {
                // Whether anything follows decides between torn and corrupt.
                self.scan.dropped_torn = true;
                self.scan.cut();
            }
            Outcome::Complete => {
                self.scan.end = self.sequence.wrapping_add(1);
                self.scan.transactions = self.scan.transactions.saturating_add(1);
                self.scan.dropped_torn = false;
                self.last_commit_seconds = seconds;
            }
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.suspicious = false;
        self.crc = V1Checksum::new();
        Ok(true)
    }

    fn classify(
        &self,
        log_block: u32,
        block: &[u8],
        seconds: u64,
    ) -> Result<Outcome, JournalError> {
        let format = &self.reader.format;
        if !self.suspicious && format.commit_holds(block, self.crc) {
            return Ok(Outcome::Complete);
        }
        if seconds < self.last_commit_seconds {
            return Ok(Outcome::Stale);
        }
        if format.is_async {
            return Ok(Outcome::Torn);
        }
        Err(self.corrupt(log_block, self.sequence))
    }

    fn corrupt(&self, log_block: u32, sequence: u32) -> JournalError {
        JournalError::corrupt(log_block, format!("transaction {sequence} is corrupt"))
    }
}
