//! Enumerates and rebuilds the states that a power cut may leave.
//!
//! Promises: the same log, options and seed give the same states in the same order with the same
//! ids. States with equal content and equal marks are built once. A state costs a snapshot of the
//! durable image plus the writes since the last flush. Tested in
//! `tests/testkit/tests/crash/explore.rs`.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use syncline_device::MemoryDevice;

use crate::crash::choices::{Pick, Shape, picks};
use crate::crash::cursor::{Cursor, Hashes, Pending, write_at};
use crate::crash::plan::Plan;
use crate::crash::{Budget, Content, CrashError, CrashLog, Entry, Point, StateId};

/// Bounds of the exhaustive part, and number of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExploreOptions {
    /// Up to so many optional writes every combination of them is built (at most 20).
    pub exhaustive_writes: usize,
    /// Up to so many sectors in them every combination of sectors is built (at most 20).
    pub exhaustive_sectors: u32,
    /// Random states per cut that is not exhaustive in sectors.
    pub samples: u32,
}

impl Default for ExploreOptions {
    fn default() -> Self {
        ExploreOptions { exhaustive_writes: 6, exhaustive_sectors: 8, samples: 8 }
    }
}

/// A state that the medium may have after a cut.
#[derive(Debug)]
pub struct CrashState {
    /// From which it can be rebuilt.
    pub id: StateId,
    /// The content of the medium; the judge may write to it.
    pub image: MemoryDevice,
    marks: Arc<[u64]>,
    marks_passed: usize,
}

impl CrashState {
    /// The marks before the cut, oldest first: what had been acknowledged.
    pub fn marks(&self) -> &[u64] {
        &self.marks[..self.marks_passed]
    }
}

/// True if nothing of a write is missing.
fn is_whole(pick: &Pick) -> bool {
    match pick {
        Pick::Kept => true,
        Pick::Lost => false,
        Pick::Torn(bits) => bits.iter().all(|there| *there),
    }
}

/// Results of an exploration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exploration {
    /// Places where the power was cut.
    pub cuts: u64,
    /// Combinations that the log has under the options; more than `candidates` if the budget was
    /// too small for all.
    pub possible: u64,
    /// Combinations looked at.
    pub candidates: u64,
    /// Those equal to an earlier one in content and marks.
    pub duplicates: u64,
    /// Distinct ones of other shards.
    pub elsewhere: u64,
    /// Distinct ones built.
    pub distinct: u64,
}

/// Explores a log. See the module's description.
pub struct Explorer {
    log: CrashLog,
    options: ExploreOptions,
    hashes: Hashes,
    marks: Arc<[u64]>,
    /// Marks that precede the whole log (those of the state that is being recovered).
    marks_before: usize,
    cursor: Mutex<Cursor>,
}

impl Explorer {
    /// With the usual options.
    pub fn new(log: CrashLog) -> Self {
        Explorer::with_options(log, ExploreOptions::default())
    }

    /// With these options.
    pub fn with_options(log: CrashLog, options: ExploreOptions) -> Self {
        Explorer::after(log, options, &[])
    }

    /// Of a log that began when `before` had been acknowledged: recovery of a state.
    pub(crate) fn after(log: CrashLog, options: ExploreOptions, before: &[u64]) -> Self {
        let own = log.entries.iter().filter_map(|entry| match entry {
            Entry::Mark(mark) => Some(*mark),
            Entry::Batch(_) | Entry::Flush | Entry::Barrier => None,
        });
        let marks: Arc<[u64]> = before.iter().copied().chain(own).collect();
        let (hashes, cursor) = (Hashes::new(&log), Mutex::new(Cursor::new(&log)));
        Explorer { log, options, hashes, marks, marks_before: before.len(), cursor }
    }

    /// The plan of the exploration.
    pub fn log(&self) -> &CrashLog {
        &self.log
    }

    /// The options.
    pub fn options(&self) -> ExploreOptions {
        self.options
    }

    /// Rebuilds a state from its id; a part for a cut within recovery is ignored here.
    pub fn state(&self, id: &StateId) -> Result<CrashState, CrashError> {
        let missing = || CrashError::NoSuchState { id: id.to_string() };
        self.check(id.point).ok_or_else(missing)?;
        let mut cursor = self.cursor_at(id.point);
        let writes = self.writes(&cursor, id.point);
        let picks = self.picks(&writes, id).ok_or_else(missing)?;
        Ok(self.build(&mut cursor, &writes, &picks, id.clone()))
    }

    /// Calls `each` with every distinct state of the budget, in log order, until it breaks.
    pub fn for_each_state(
        &self,
        budget: &Budget,
        mut each: impl FnMut(CrashState) -> ControlFlow<()>,
    ) -> Exploration {
        let plan = Plan::new(&self.log, &self.options, budget);
        let cuts = plan.cuts.len() as u64;
        let mut stats = Exploration { cuts, possible: plan.possible, ..Exploration::default() };
        // Asked for membership only, so its order does not matter.
        let mut known: HashSet<(u64, usize)> = HashSet::new();
        let mut cursor = Cursor::new(&self.log);
        for &point in &plan.cuts {
            cursor.advance_to(&self.log, &self.hashes, point.entries);
            let writes = self.writes(&cursor, point);
            let units = self.units(&writes);
            let new = self.new_writes(point).unwrap_or(units.len());
            let shape = Shape { units: &units, new };
            for choice in plan.choices(shape, &self.options, budget.seed, point) {
                let id = StateId { seed: budget.seed, point, choice, inner: None };
                let Some(picks) = self.picks(&writes, &id) else { continue };
                stats.candidates += 1;
                let sum = cursor.content_sum(&self.log, &self.hashes, &writes, &picks);
                if !known.insert((sum, cursor.marks)) {
                    stats.duplicates += 1;
                    continue;
                }
                // By content, so that equal states of different cuts go to the same shard.
                if (sum ^ cursor.marks as u64) % budget.shard.count.max(1) != budget.shard.index {
                    stats.elsewhere += 1;
                    continue;
                }
                stats.distinct += 1;
                if each(self.build(&mut cursor, &writes, &picks, id)).is_break() {
                    return stats;
                }
            }
        }
        stats
    }

    /// Lists the writes that are there and those lost in a state, one write a line, for a person.
    pub fn describe(&self, id: &StateId) -> String {
        const LINES_MAX: usize = 40;
        let mut text =
            format!("cut {} of {} log entries", id.point.entries, self.log.entries.len());
        if self.check(id.point).is_none() {
            return text + " (not in this log)";
        }
        let cursor = self.cursor_at(id.point);
        let writes = self.writes(&cursor, id.point);
        let Some(picks) = self.picks(&writes, id) else { return text + " (not in this log)" };
        for (pending, pick) in writes.iter().zip(&picks).take(LINES_MAX) {
            let Some(write) = write_at(&self.log, pending.at) else { continue };
            let fate = match pick {
                Pick::Kept if pending.fixed => "durable".to_string(),
                Pick::Kept => "there".to_string(),
                Pick::Lost => "lost".to_string(),
                Pick::Torn(bits) => bits.iter().map(|b| if *b { '#' } else { '.' }).collect(),
            };
            let (offset, len, kind) = (write.offset_bytes, write.len_bytes(), write.origin.kind);
            let entry = pending.at.0;
            // Writing to a string does not fail.
            let _ = write!(text, "\n  entry {entry}: {len} bytes at {offset}, {kind:?}: {fate}");
        }
        if writes.len() > LINES_MAX {
            let _ = write!(text, "\n  and {} more", writes.len() - LINES_MAX);
        }
        text
    }

    fn check(&self, point: Point) -> Option<()> {
        if point.in_flight {
            self.new_writes(point).map(|_| ())
        } else {
            (point.entries <= self.log.entries.len()).then_some(())
        }
    }

    /// Writes of the batch under way; `None` if there is none.
    fn new_writes(&self, point: Point) -> Option<usize> {
        match self.log.entries.get(point.entries) {
            Some(Entry::Batch(writes)) if point.in_flight => Some(writes.len()),
            _ => None,
        }
    }

    /// The shared cursor, taken to a point; backwards means from the start again.
    fn cursor_at(&self, point: Point) -> parking_lot::MutexGuard<'_, Cursor> {
        let mut cursor = self.cursor.lock();
        if cursor.entries > point.entries {
            *cursor = Cursor::new(&self.log);
        }
        cursor.advance_to(&self.log, &self.hashes, point.entries);
        cursor
    }

    /// Every write that may matter at the cut, in log order.
    fn writes(&self, cursor: &Cursor, point: Point) -> Vec<Pending> {
        let mut writes = cursor.pending.clone();
        let new = self.new_writes(point).unwrap_or(0);
        let barriers = cursor.barriers;
        writes.extend((0..new).map(|i| Pending { at: (point.entries, i), fixed: false, barriers }));
        writes
    }

    /// Sizes of the optional ones.
    fn units(&self, writes: &[Pending]) -> Vec<u64> {
        let optional = writes.iter().filter(|p| !p.fixed);
        optional.filter_map(|p| write_at(&self.log, p.at)).map(|w| w.units()).collect()
    }

    /// Choice of the id for each write, the fixed ones included.
    fn picks(&self, writes: &[Pending], id: &StateId) -> Option<Vec<Pick>> {
        let units = self.units(writes);
        let mut optional = picks(id.choice, &units, id.seed, id.point)?.into_iter();
        let mut pick = |p: &Pending| if p.fixed { Some(Pick::Kept) } else { optional.next() };
        let picks: Option<Vec<Pick>> = writes.iter().map(&mut pick).collect();
        picks.map(|picks| self.in_order(writes, picks))
    }

    /// Takes away the writes behind a barrier before which one is missing. Barriers do not order
    /// discards.
    fn in_order(&self, writes: &[Pending], mut picks: Vec<Pick>) -> Vec<Pick> {
        let is_discard = |pending: &Pending| {
            let write = write_at(&self.log, pending.at);
            write.is_some_and(|write| matches!(write.content, Content::Discard { .. }))
        };
        let ordered = || writes.iter().enumerate().filter(|(_, pending)| !is_discard(pending));
        let missing = ordered().find(|(n, _)| !is_whole(&picks[*n]));
        let Some((_, Pending { barriers, .. })) = missing else { return picks };
        let behind: Vec<usize> =
            ordered().filter(|(_, p)| p.barriers > *barriers).map(|(n, _)| n).collect();
        behind.into_iter().for_each(|n| picks[n] = Pick::Lost);
        picks
    }

    fn build(
        &self,
        cursor: &mut Cursor,
        writes: &[Pending],
        picks: &[Pick],
        id: StateId,
    ) -> CrashState {
        let image = cursor.image(&self.log, writes, picks);
        let (marks, marks_passed) = (self.marks.clone(), self.marks_before + cursor.marks);
        CrashState { id, image, marks, marks_passed }
    }
}
