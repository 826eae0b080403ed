//! Memory of a check, only for groups that use any: runs of clusters, or one bit a cluster where
//! they are many.
//!
//! Tested through `tests/it/check.rs`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use syncline_ondisk::{Geometry, bitmap};

/// Runs of a group that are kept as such; more of them are a bitmap.
const RUNS_MAX: usize = 64;

/// Set bits of a group.
enum Bits {
    /// From and up to; ascending, none touches the next.
    Runs(Vec<(u32, u32)>),
    Map(Vec<u8>),
}

impl Bits {
    /// First set bit of `from..end`.
    fn next(&self, from: u32, end: u32) -> Option<u32> {
        match self {
            Self::Runs(runs) => {
                let run = runs.get(runs.partition_point(|run| run.1 <= from))?;
                Some(run.0.max(from)).filter(|bit| *bit < end)
            }
            Self::Map(map) => bitmap::find_set(map, from, end),
        }
    }

    /// How many of the bits `from..end` are set, and the first of them.
    fn set_in(&self, from: u32, end: u32) -> Option<(u32, u32)> {
        let first = self.next(from, end)?;
        let count = match self {
            Self::Runs(runs) => {
                let at = runs.partition_point(|run| run.1 <= from);
                let within = runs.iter().skip(at).take_while(|run| run.0 < end);
                within.map(|run| run.1.min(end) - run.0.max(from)).sum()
            }
            Self::Map(map) => bitmap::count_set(map, from, end),
        };
        Some((first, count))
    }

    /// Sets `from..end` of a group with a bitmap of `bytes`.
    fn set(&mut self, from: u32, end: u32, bytes: usize) {
        if let Self::Runs(runs) = self {
            let at = runs.partition_point(|run| run.1 < from);
            let after = runs.partition_point(|run| run.0 <= end);
            let joined = runs.get(at..after).unwrap_or(&[]);
            let first = joined.first().map_or(from, |run| run.0.min(from));
            let last = joined.last().map_or(end, |run| run.1.max(end));
            runs.splice(at..after, [(first, last)]);
            if runs.len() <= RUNS_MAX {
                return;
            }
            *self = Self::Map(self.map(bytes).into_owned());
        }
        if let Self::Map(map) = self {
            let _ = bitmap::set_range(map, from, end - from);
        }
    }

    /// A bitmap of `bytes`.
    fn map(&self, bytes: usize) -> Cow<'_, [u8]> {
        match self {
            Self::Map(map) => Cow::Borrowed(map),
            Self::Runs(runs) => {
                let mut map = vec![0; bytes];
                for (from, end) in runs {
                    let _ = bitmap::set_range(&mut map, *from, end - from);
                }
                Cow::Owned(map)
            }
        }
    }
}

/// Clusters that something uses. A cluster is a block without `bigalloc`.
pub(super) struct BlockMarks {
    groups: BTreeMap<u32, Bits>,
    /// Those of them that were marked more than once.
    twice: BTreeMap<u32, Bits>,
    /// First cluster of group 0.
    first: u64,
    /// One past the last cluster.
    end: u64,
    per_group: u32,
}

impl BlockMarks {
    /// No marks, for clusters of `1 << cluster_bits` blocks.
    pub(super) fn new(geo: &Geometry, cluster_bits: u32) -> Self {
        let ratio = 1u64 << cluster_bits;
        Self {
            groups: BTreeMap::new(),
            twice: BTreeMap::new(),
            first: u64::from(geo.first_data_block) >> cluster_bits,
            end: geo.blocks_count.div_ceil(ratio),
            per_group: (geo.blocks_per_group >> cluster_bits).max(1),
        }
    }

    /// Clusters of a group; the last one may be short.
    pub(super) fn in_group(&self, group: u32) -> u32 {
        let before = self.first + u64::from(group) * u64::from(self.per_group);
        u32::try_from(self.end.saturating_sub(before)).unwrap_or(u32::MAX).min(self.per_group)
    }

    /// Group and bit of a cluster.
    fn place(&self, cluster: u64) -> Option<(u32, u32)> {
        if cluster >= self.end {
            return None;
        }
        let at = cluster.checked_sub(self.first)?;
        let per = u64::from(self.per_group);
        Some((u32::try_from(at / per).ok()?, u32::try_from(at % per).ok()?))
    }

    /// Marks `len` clusters from `start`; those outside of the volume are left out. The first that
    /// was marked before is returned, with how many there are.
    pub(super) fn mark(&mut self, start: u64, len: u64) -> Option<(u64, u64)> {
        let (mut at, end) = (start, start.saturating_add(len));
        let mut clash: Option<(u64, u64)> = None;
        while at < end {
            let Some((group, bit)) = self.place(at) else { break };
            let room = self.per_group - bit;
            let run = u32::try_from(end - at).unwrap_or(u32::MAX).min(room);
            let bytes = self.bytes();
            let marks = self.groups.entry(group).or_insert_with(|| Bits::Runs(Vec::new()));
            if let Some((first, before)) = marks.set_in(bit, bit + run) {
                let cluster = at + u64::from(first - bit);
                clash = Some(
                    clash.map_or((cluster, before.into()), |(c, n)| (c, n + u64::from(before))),
                );
                let twice = self.twice.entry(group).or_insert_with(|| Bits::Runs(Vec::new()));
                for bit in (bit..bit + run).filter(|bit| marks.set_in(*bit, bit + 1).is_some()) {
                    twice.set(bit, bit + 1, bytes);
                }
            }
            marks.set(bit, bit + run, bytes);
            at += u64::from(run);
        }
        clash
    }

    /// True if a cluster is marked.
    pub(super) fn is_marked(&self, cluster: u64) -> bool {
        self.is_in(&self.groups, cluster)
    }

    /// Clusters that are marked here and were marked in `other` more than once.
    pub(super) fn twice_in<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u64> + 'a {
        self.groups.iter().flat_map(move |(group, marks)| {
            let start = self.first + u64::from(*group) * u64::from(self.per_group);
            let mut from = 0;
            std::iter::from_fn(move || {
                let twice = other.twice.get(group)?;
                loop {
                    let own = marks.next(from, self.per_group)?;
                    from = twice.next(own, self.per_group)?;
                    if from == own {
                        from += 1;
                        return Some(start + u64::from(own));
                    }
                }
            })
        })
    }

    /// True if a cluster was marked more than once.
    pub(super) fn is_twice(&self, cluster: u64) -> bool {
        self.is_in(&self.twice, cluster)
    }

    fn is_in(&self, marks: &BTreeMap<u32, Bits>, cluster: u64) -> bool {
        self.place(cluster).is_some_and(|(group, bit)| {
            marks.get(&group).is_some_and(|marks| marks.set_in(bit, bit + 1).is_some())
        })
    }

    /// Bytes of the bitmap of a group.
    fn bytes(&self) -> usize {
        self.per_group.div_ceil(8) as usize
    }

    /// First cluster of `len` in a group that are neither marked here nor set in `other`.
    pub(super) fn find_free(&self, group: u32, len: u32, other: &[u8]) -> Option<u64> {
        let count = self.in_group(group);
        let mut map = self.group(group).into_owned();
        map.iter_mut().zip(other).for_each(|(to, from)| *to |= *from);
        let bit = bitmap::find_zero_run(&map, 0, count, len)?;
        Some(self.first + u64::from(group) * u64::from(self.per_group) + u64::from(bit))
    }

    /// The bitmap of a group.
    pub(super) fn group(&self, group: u32) -> Cow<'_, [u8]> {
        let marks = self.groups.get(&group);
        marks.map_or_else(|| Cow::Owned(vec![0; self.bytes()]), |marks| marks.map(self.bytes()))
    }
}

/// Logical blocks `block..block + len` are at physical `start..start + len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) block: u32,
    pub(super) len: u32,
    pub(super) start: u64,
}

/// Blocks of one inode, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs(Vec<Run>);

impl Runs {
    /// Adds blocks behind those that are there; others are left out.
    pub(super) fn push(&mut self, run: Run) {
        match self.0.last_mut() {
            Some(last) if run.block < last.block.saturating_add(last.len) => {}
            Some(last)
                if last.block.checked_add(last.len) == Some(run.block)
                    && last.start.checked_add(last.len.into()) == Some(run.start)
                    && last.len.checked_add(run.len).is_some() =>
            {
                last.len += run.len;
            }
            _ => self.0.push(run),
        }
    }

    /// Physical block of a logical one.
    pub(super) fn map(&self, block: u32) -> Option<u64> {
        let after = self.0.partition_point(|run| run.block <= block);
        let run = self.0.get(after.checked_sub(1)?)?;
        let at = block - run.block;
        (at < run.len).then(|| run.start + u64::from(at))
    }

    /// Every block: logical and physical number.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.0
            .iter()
            .flat_map(|run| (run.block..run.block.saturating_add(run.len)).zip(run.start..))
    }
}

/// Findings about one directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Dir {
    /// The directory that holds its name; 0: none was found.
    pub(super) parent: u32,
    /// The directory that its `..` names; 0: it could not be read.
    pub(super) dotdot: u32,
    /// Its blocks.
    pub(super) runs: Runs,
}
