//! Findings of a check about inodes, only for groups that use any: runs of alike inodes, or four
//! bits an inode where they are many, or two bytes an inode where they differ much.
//!
//! Tested below, and through `tests/it/check.rs`.

use std::collections::BTreeMap;

use syncline_ondisk::Geometry;

/// Runs of a group that are kept as such; more of them have four bits an inode.
const RUNS_MAX: usize = 64;

/// Findings about one inode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// i_links_count.
    pub(super) links: u16,
    /// Directory entries that name it, or more.
    pub(super) refs: u16,
    /// `file_type::*`, 0 if the inode has no type.
    pub(super) file_type: u8,
    /// In use: it has links, or it is reserved.
    pub(super) used: bool,
    /// Of the file system itself: it has no name.
    pub(super) system: bool,
    /// A directory with an index.
    pub(super) indexed: bool,
    /// Names of it are not counted (`imagic_inodes`).
    pub(super) imagic: bool,
}

/// Bits of a [`Known`] in two bytes: type, flags, links and references.
const FLAGS_AT: u16 = 3;
const LINKS_AT: u16 = 7;
const REFS_AT: u16 = 11;
/// Links or references that are not in the two bytes: all numbers from here on.
const MANY: u16 = 15;

/// Runs of a group that become runs again.
const RUNS_AGAIN: usize = RUNS_MAX / 2;

/// Different words of a group that four bits an inode can name, and that are left after those of no
/// inode are dropped.
const FEW: usize = 16;
const FEW_LEFT: usize = 12;

/// One word for each inode of a group; most are alike.
enum Words {
    /// First inode and word of each run; ascending from 0, and no two neighbours are alike.
    Runs {
        runs: Vec<(u32, u16)>,
        count: u32,
    },
    /// Four bits an inode, which name a word.
    Few {
        words: Vec<u16>,
        names: Vec<u8>,
    },
    Many(Vec<u16>),
}

impl Words {
    fn new(count: u32) -> Self {
        Self::Runs { runs: vec![(0, 0)], count }
    }

    fn get(&self, index: u32) -> u16 {
        match self {
            Self::Runs { runs, .. } => {
                let after = runs.partition_point(|run| run.0 <= index);
                after.checked_sub(1).and_then(|at| runs.get(at)).map_or(0, |run| run.1)
            }
            Self::Few { words, names } => {
                words.get(name_of(names, index as usize)).copied().unwrap_or(0)
            }
            Self::Many(words) => words.get(index as usize).copied().unwrap_or(0),
        }
    }

    fn set(&mut self, index: u32, word: u16) {
        match self {
            Self::Runs { runs, count } => {
                set_in_runs(runs, *count, index, word);
                if runs.len() > RUNS_MAX {
                    *self = Self::named(runs, *count);
                }
            }
            Self::Few { words, names } => {
                let known = words.iter().position(|known| *known == word);
                let Some(name) = known.or_else(|| add(words, names, word)) else {
                    let count = names.len() as u32 * 2;
                    *self = Self::Many((0..count).map(|index| self.get(index)).collect());
                    return self.set(index, word);
                };
                let at = index as usize;
                if let Some(pair) = names.get_mut(at / 2) {
                    *pair = *pair & (0xf0 >> (at % 2 * 4)) | (name as u8) << (at % 2 * 4);
                }
            }
            Self::Many(words) => {
                if let Some(place) = words.get_mut(index as usize) {
                    *place = word;
                }
            }
        }
    }

    /// Runs with four bits an inode, or two bytes if they differ much.
    fn named(runs: &[(u32, u16)], count: u32) -> Self {
        let mut new = Self::Few { words: vec![0], names: vec![0; (count as usize).div_ceil(2)] };
        let ends = runs.iter().skip(1).map(|run| run.0).chain([count]);
        for ((start, word), end) in runs.iter().zip(ends) {
            (*start..end).for_each(|index| new.set(index, *word));
        }
        new
    }

    fn is_named(&self) -> bool {
        matches!(self, Self::Few { .. })
    }

    /// Keeps words with four bits an inode as runs, if these are few.
    fn try_runs(&mut self) {
        let Self::Few { words, names } = self else { return };
        let count = names.len() as u32 * 2;
        let mut runs: Vec<(u32, u16)> = Vec::new();
        let (mut last, mut pattern) = (FEW, None);
        for (pair, at) in names.iter().zip((0..).step_by(2)) {
            if pattern == Some(*pair) {
                continue;
            }
            for (name, at) in [(usize::from(pair & 0xf), at), (usize::from(pair >> 4), at + 1)] {
                if name != last {
                    runs.push((at, words.get(name).copied().unwrap_or(0)));
                    last = name;
                }
            }
            if runs.len() > RUNS_AGAIN {
                return;
            }
            pattern = Some(last as u8 * 0x11);
        }
        *self = Self::Runs { runs, count };
    }
}

/// Sets one of `count` words that are kept as runs.
fn set_in_runs(runs: &mut Vec<(u32, u16)>, count: u32, index: u32, word: u16) {
    let after = runs.partition_point(|run| run.0 <= index);
    let Some(at) = after.checked_sub(1).filter(|_| index < count) else { return };
    let Some((start, old)) = runs.get(at).copied().filter(|run| run.1 != word) else { return };
    let end = runs.get(after).map_or(count, |run| run.0);
    let joins_before = index == start && at > 0 && runs.get(at - 1).is_some_and(|r| r.1 == word);
    let joins_after = index + 1 == end && runs.get(after).is_some_and(|run| run.1 == word);
    let left = (index > start).then_some((start, old));
    let own = (!joins_before).then_some((index, word));
    let right = (index + 1 < end).then_some((index + 1, old));
    let until = after + usize::from(joins_after);
    runs.splice(at..until, left.into_iter().chain(own).chain(right));
}

fn name_of(names: &[u8], index: usize) -> usize {
    names.get(index / 2).map_or(0, |pair| usize::from(pair >> (index % 2 * 4) & 0xf))
}

/// Adds a word; none if too many are in use.
fn add(words: &mut Vec<u16>, names: &mut [u8], word: u16) -> Option<usize> {
    if words.len() == FEW {
        let mut new = [None; FEW];
        let mut left = Vec::new();
        let mut rename = |name: u8| {
            *new[usize::from(name)].get_or_insert_with(|| {
                left.push(words[usize::from(name)]);
                left.len() as u8 - 1
            })
        };
        for pair in names.iter_mut() {
            *pair = rename(*pair & 0xf) | rename(*pair >> 4) << 4;
        }
        *words = left;
        if words.len() > FEW_LEFT {
            return None;
        }
    }
    words.push(word);
    Some(words.len() - 1)
}

/// Every inode in use, by group.
#[derive(Default)]
pub(super) struct KnownInodes {
    groups: BTreeMap<u32, Words>,
    /// Links and references of the others.
    many: BTreeMap<u32, (u16, u16)>,
    /// Groups that were runs before the last changes.
    were_runs: Vec<u32>,
}

impl KnownInodes {
    fn unpack(&self, ino: u32, word: u16) -> Known {
        let flag = |nr: u16| word >> (FLAGS_AT + nr) & 1 != 0;
        let few = |at: u16| word >> at & MANY;
        let few = (few(LINKS_AT), few(REFS_AT));
        let (links, refs) =
            if few.0 < MANY { few } else { self.many.get(&ino).copied().unwrap_or(few) };
        let (used, system, indexed, imagic) = (flag(0), flag(1), flag(2), flag(3));
        Known { links, refs, file_type: (word & 7) as u8, used, system, indexed, imagic }
    }

    fn pack(&mut self, ino: u32, known: &Known) -> u16 {
        let flags = [known.used, known.system, known.indexed, known.imagic];
        let flags = (0..).zip(flags).fold(0, |all, (nr, flag)| all | u16::from(flag) << nr);
        let is_many = known.links.max(known.refs) >= MANY;
        if is_many {
            self.many.insert(ino, (known.links, known.refs));
        }
        let (links, refs) = if is_many { (MANY, MANY) } else { (known.links, known.refs) };
        u16::from(known.file_type & 7) | flags << FLAGS_AT | links << LINKS_AT | refs << REFS_AT
    }

    /// Returns the findings about `ino`.
    pub(super) fn get(&self, geo: &Geometry, ino: u32) -> Known {
        let Some((group, index)) = geo.inode_group(ino) else { return Known::default() };
        let words = self.groups.get(&group);
        words.map_or_else(Known::default, |words| self.unpack(ino, words.get(index)))
    }

    /// Changes the findings about `ino`, if the volume has it.
    pub(super) fn change(&mut self, geo: &Geometry, ino: u32, change: impl FnOnce(&mut Known)) {
        let Some((group, index)) = geo.inode_group(ino) else { return };
        let mut known = self.get(geo, ino);
        change(&mut known);
        let word = self.pack(ino, &known);
        let new = || Words::new(geo.inodes_per_group);
        let words = self.groups.entry(group).or_insert_with(new);
        let was_named = words.is_named();
        words.set(index, word);
        if words.is_named() && !was_named {
            self.were_runs.push(group);
        }
    }

    /// Saves memory between directories. One names the inodes of a group in any order, and in the
    /// end they are often alike again.
    pub(super) fn settle(&mut self) {
        for group in std::mem::take(&mut self.were_runs) {
            if let Some(words) = self.groups.get_mut(&group) {
                words.try_runs();
            }
        }
    }

    /// The inodes of a group; none if it has none in use.
    pub(super) fn group(&self, geo: &Geometry, group: u32) -> impl Iterator<Item = Known> + '_ {
        self.numbered(geo.inodes_per_group, group).map(|(_, known)| known)
    }

    fn numbered(&self, per_group: u32, group: u32) -> impl Iterator<Item = (u32, Known)> + use<'_> {
        let first = group.saturating_mul(per_group).saturating_add(1);
        self.groups.get(&group).into_iter().flat_map(move |words| {
            let of = move |index| self.unpack(first + index, words.get(index));
            (0..per_group).map(move |index| (first + index, of(index)))
        })
    }

    /// All in use, ascending.
    pub(super) fn used(&self, geo: &Geometry) -> impl Iterator<Item = (u32, Known)> + use<'_> {
        let per_group = geo.inodes_per_group;
        let all = self.groups.keys().flat_map(move |group| self.numbered(per_group, *group));
        all.filter(|(_, known)| known.used)
    }
}

#[cfg(test)]
mod tests {
    use syncline_device::SplitMix64;

    use super::{FEW, FEW_LEFT, RUNS_AGAIN, RUNS_MAX, Words};

    const COUNT: u32 = 400;

    fn agree(words: &Words, model: &[u16]) {
        assert!((0..).zip(model).all(|(at, word)| words.get(at) == *word));
    }

    #[test]
    fn inodes_keep_their_words_in_runs_or_four_bits_or_two_bytes() {
        let mut rng = SplitMix64::new(1);
        for kinds in [1, FEW_LEFT as u64 / 2, 4 * FEW as u64] {
            let (mut words, mut model) = (Words::new(COUNT), vec![0; COUNT as usize]);
            for round in 0..20 * COUNT {
                // Words of the second to last pass are dropped.
                let word = (u64::from(round / COUNT * 100) + rng.below(kinds)) as u16;
                let index = round % COUNT;
                words.set(index, word);
                model[index as usize] = word;
                agree(&words, &model);
            }
            match words {
                Words::Runs { runs, .. } => assert_eq!((kinds, runs.len()), (1, 1)),
                Words::Few { .. } => assert!(kinds > 1 && kinds < FEW as u64),
                Words::Many(_) => assert!(kinds > FEW as u64),
            }
        }
    }

    #[test]
    fn runs_of_inodes_join_and_become_runs_again() {
        let mut rng = SplitMix64::new(2);
        let (mut words, mut model) = (Words::new(COUNT), vec![0; COUNT as usize]);
        for round in 0..100_000 {
            let index = rng.below(u64::from(COUNT)) as u32;
            // Most inodes have the word of the pass: runs become many, and few again.
            let word = (round / 10_000 + u64::from(rng.below(1000) == 0)) as u16;
            words.set(index, word);
            model[index as usize] = word;
            let starts = 1 + model.windows(2).filter(|pair| pair[0] != pair[1]).count();
            match &mut words {
                Words::Runs { runs, .. } => assert_eq!(runs.len(), starts, "round {round}"),
                Words::Few { .. } if starts <= RUNS_AGAIN => {
                    words.try_runs();
                    assert!(!words.is_named());
                }
                Words::Few { .. } => {}
                Words::Many(_) => panic!("round {round}: {starts} runs"),
            }
            assert!(starts <= RUNS_MAX || words.is_named());
            agree(&words, &model);
        }
        assert!(!words.is_named());
    }
}
