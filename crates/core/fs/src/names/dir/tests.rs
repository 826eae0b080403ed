//! Directory algorithms on blocks in memory, against a map of names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use syncline_ondisk::OndiskError;
use syncline_ondisk::dir::{DirFormat, file_type, init_dots};
use syncline_ondisk::htree::{HashKind, HashVersion};

use super::readdir::read_batch;
use super::store::{self, BlockKind, DirParams, DirRead, DirWrite};
use super::{Probe, insert, is_empty, probe, remove, set_ino};
use crate::error::{FsError, Result};

/// One directory in memory. Every block is checked at every access, as if nothing were cached.
#[derive(Clone)]
struct Memory {
    params: DirParams,
    block_size: usize,
    blocks: Vec<Arc<[u8]>>,
    indexed: bool,
}

impl Memory {
    fn new(block_size: usize, version: HashVersion, tail: bool, dir_index: bool) -> Memory {
        let format = DirFormat { tail, filetype: true, inodes_count: 1 << 30 };
        let params = DirParams {
            encrypted: false,
            fold: None,
            ino: 12,
            format,
            csum_seed: 0x1234_5678,
            hash: HashKind { version, seed: [1, 2, 3, 4] },
            hash_unsigned: matches!(
                version,
                HashVersion::LegacyUnsigned
                    | HashVersion::HalfMd4Unsigned
                    | HashVersion::TeaUnsigned
            ),
            dir_index,
            large_dir: false,
        };
        let mut block = vec![0; block_size];
        init_dots(&mut block, &format, 12, 2);
        store::seal(&mut block, BlockKind::Leaf, &params);
        Memory { params, block_size, blocks: vec![block.into()], indexed: false }
    }

    fn add(&mut self, name: &[u8], ino: u32) -> Result<()> {
        match probe(self, name)? {
            Probe::Found(_) => Err(FsError::Exists),
            Probe::Absent(place) => insert(self, (name, ino, file_type::REG_FILE), place),
        }
    }

    fn delete(&mut self, name: &[u8]) -> Result<()> {
        match probe(self, name)? {
            Probe::Found(found) => remove(self, &found),
            Probe::Absent(_) => Err(FsError::NotFound),
        }
    }

    fn get(&self, name: &[u8]) -> Option<u32> {
        match probe(self, name).unwrap() {
            Probe::Found(found) => Some(found.ino),
            Probe::Absent(_) => None,
        }
    }

    /// All names from `cookie` on, at most `most` of them, and the cookie behind them.
    fn read(&self, mut cookie: u64, most: usize) -> (Vec<(Vec<u8>, u32)>, Option<u64>) {
        let mut all = Vec::new();
        loop {
            let batch = read_batch(self, cookie).unwrap();
            let mut at = cookie;
            let go_on = batch.deliver(&mut |entry| {
                if all.len() == most {
                    return false;
                }
                assert!(entry.next_cookie > at, "cookies ascend");
                at = entry.next_cookie;
                all.push((entry.name.to_vec(), entry.ino));
                true
            });
            if !go_on {
                return (all, Some(at));
            }
            match batch.next {
                Some(next) => cookie = next,
                None => return (all, None),
            }
        }
    }
}

impl DirRead for Memory {
    fn params(&self) -> &DirParams {
        &self.params
    }
    fn block_size(&self) -> usize {
        self.block_size
    }
    fn blocks(&self) -> u32 {
        self.blocks.len() as u32
    }
    fn indexed(&self) -> bool {
        self.indexed
    }
    fn block(&self, lblk: u32, kind: BlockKind) -> Result<Arc<[u8]>> {
        let block = Arc::clone(&self.blocks[lblk as usize]);
        store::check(&block, kind, &self.params, self.blocks())
            .map_err(|err| self.broken(lblk, err))?;
        Ok(block)
    }
    fn broken(&self, lblk: u32, err: OndiskError) -> FsError {
        err.in_inode(self.params.ino).in_block(lblk.into()).into()
    }
}

impl DirWrite for Memory {
    fn edit(
        &mut self,
        lblk: u32,
        kind: BlockKind,
        f: impl FnOnce(&mut [u8]) -> std::result::Result<(), OndiskError>,
    ) -> Result<()> {
        let mut block = self.blocks[lblk as usize].to_vec();
        f(&mut block).map_err(|err| self.broken(lblk, err))?;
        store::seal(&mut block, kind, &self.params);
        self.blocks[lblk as usize] = block.into();
        Ok(())
    }
    fn append(&mut self, kind: BlockKind, bytes: &[u8]) -> Result<u32> {
        let mut block = bytes.to_vec();
        store::seal(&mut block, kind, &self.params);
        self.blocks.push(block.into());
        Ok(self.blocks() - 1)
    }
    fn set_indexed(&mut self) {
        self.indexed = true;
    }
}

const VERSIONS: [HashVersion; 6] = [
    HashVersion::Legacy,
    HashVersion::HalfMd4,
    HashVersion::Tea,
    HashVersion::LegacyUnsigned,
    HashVersion::HalfMd4Unsigned,
    HashVersion::TeaUnsigned,
];

fn random_name(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let len =
        if rng.random_bool(0.1) { rng.random_range(1..=255) } else { rng.random_range(1..24) };
    (0..len)
        .map(|_| match rng.random_range(1..=255u8) {
            b'/' => b'_',
            byte => byte,
        })
        .collect()
}

fn same(dir: &Memory, model: &BTreeMap<Vec<u8>, u32>, what: &str) {
    let (all, _) = dir.read(0, usize::MAX);
    let names: BTreeMap<Vec<u8>, u32> =
        all.iter().filter(|(name, _)| name != b"." && name != b"..").cloned().collect();
    assert_eq!(all.len(), model.len() + 2, "{what}: each entry once");
    assert_eq!(&names, model, "{what}");
}

#[test]
fn random_changes_equal_a_map() {
    for seed in 0..24u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let version = VERSIONS[seed as usize % 6];
        let size = [1024, 4096][seed as usize / 6 % 2];
        let (tail, dir_index) = (seed % 4 < 2, seed != 23);
        let what = format!("seed {seed} {version:?} {size} tail={tail} index={dir_index}");
        let mut dir = Memory::new(size, version, tail, dir_index);
        let mut model = BTreeMap::new();
        for step in 0..3000u32 {
            if rng.random_bool(0.7) || model.is_empty() {
                let name = random_name(&mut rng);
                let special = name == b"." || name == b"..";
                let result = dir.add(&name, step + 100);
                if special || model.contains_key(&name) {
                    assert_eq!(result, Err(FsError::Exists), "{what} step {step}");
                } else {
                    assert_eq!(result, Ok(()), "{what} step {step}");
                    model.insert(name, step + 100);
                }
            } else {
                let nth = rng.random_range(0..model.len());
                let name = model.keys().nth(nth).unwrap().clone();
                assert_eq!(dir.get(&name), model.get(&name).copied(), "{what} step {step}");
                dir.delete(&name).unwrap();
                assert_eq!(dir.get(&name), None, "{what} step {step}");
                model.remove(&name);
            }
            if step % 500 == 0 {
                same(&dir, &model, &what);
            }
        }
        assert_eq!(dir.indexed, dir_index, "{what}");
        same(&dir, &model, &what);
        for (name, ino) in &model {
            assert_eq!(dir.get(name), Some(*ino), "{what}");
        }
        for name in model.keys() {
            assert!(!is_empty(&dir).unwrap(), "{what}");
            dir.delete(name).unwrap();
        }
        assert!(is_empty(&dir).unwrap(), "{what}");
    }
}

#[test]
fn reading_in_pieces_meets_every_lasting_name_once() {
    for seed in 0..12u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let what = format!("seed {seed}");
        let mut dir = Memory::new(1024, VERSIONS[seed as usize % 6], true, seed != 11);
        // Few at first, so that one-block directories become indexed while they are read.
        let lasting: BTreeSet<Vec<u8>> =
            (0..if seed < 6 { 10 } else { 400 }).map(|n| format!("stay{n}").into_bytes()).collect();
        let mut others: Vec<Vec<u8>> = (0..300)
            .map(|n| format!("go{n}").into_bytes())
            .take(if seed < 6 { 5 } else { 300 })
            .collect();
        for name in lasting.iter().chain(&others) {
            dir.add(name, 50).unwrap();
        }
        let (mut seen, mut cookie) = (Vec::new(), 0);
        let mut fresh = 0;
        loop {
            let (part, next) = dir.read(cookie, rng.random_range(1..9));
            seen.extend(part.into_iter().map(|(name, _)| name));
            let Some(next) = next else { break };
            cookie = next;
            for _ in 0..4 {
                if !others.is_empty() && rng.random_bool(0.5) {
                    let nth = rng.random_range(0..others.len());
                    dir.delete(&others.swap_remove(nth)).unwrap();
                } else {
                    let name = format!("new{fresh}").into_bytes();
                    fresh += 1;
                    dir.add(&name, 51).unwrap();
                    others.push(name);
                }
            }
            assert!(seen.len() < 20_000, "{what}: the end comes");
        }
        let once: BTreeSet<_> = seen.iter().filter(|name| lasting.contains(*name)).collect();
        assert_eq!(once.len(), lasting.len(), "{what}: none is missed");
        let all: BTreeSet<_> = seen.iter().collect();
        if seed != 11 {
            assert_eq!(all.len(), seen.len(), "{what}: none comes twice");
        }
    }
}

#[test]
fn two_levels_hold_many_names_and_then_it_is_full() {
    // 1 KiB blocks and long names: about 3 names a leaf, 123 leaves a node, 122 nodes a root.
    let mut dir = Memory::new(1024, HashVersion::HalfMd4, true, true);
    let name = |n: u32| format!("{n:0>200}").into_bytes();
    let mut count = 0;
    let full = loop {
        match dir.add(&name(count), 77) {
            Ok(()) => count += 1,
            Err(err) => break err,
        }
    };
    assert_eq!(full, FsError::NoSpace);
    assert!(count > 20_000, "{count}");
    for n in (0..count).step_by(97) {
        assert_eq!(dir.get(&name(n)), Some(77));
    }
    let (all, _) = dir.read(0, usize::MAX);
    assert_eq!(all.len() as u32, count + 2);
}

#[test]
fn equal_hashes_run_over_several_leaves() {
    // 31 bits of legacy hash: among 400,000 names some 37 pairs collide. Long names, so that a leaf
    // holds four and splits fall between the two of a pair.
    let kind = HashKind { version: HashVersion::Legacy, seed: [1, 2, 3, 4] };
    let mut by_hash: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
    for n in 0..400_000u32 {
        let name = format!("{n:0>180}").into_bytes();
        by_hash.entry(syncline_ondisk::htree::hash(&kind, &name).major).or_default().push(name);
    }
    let pairs: Vec<Vec<u8>> = by_hash.into_values().filter(|run| run.len() > 1).flatten().collect();
    assert!(pairs.len() > 20, "found {}", pairs.len());
    let mut dir = Memory::new(1024, HashVersion::Legacy, true, true);
    let mut names = pairs;
    names.extend((0..2000).map(|n| format!("{n:0>190}").into_bytes()));
    names.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
    for (n, name) in names.iter().enumerate() {
        dir.add(name, 100 + n as u32).unwrap();
    }
    let mut continued = 0;
    let mut path = super::htree::walk(&dir, |_| 0).unwrap();
    loop {
        continued += path.next_hash().unwrap_or(0) & 1;
        if !path.advance(&dir).unwrap() {
            break;
        }
    }
    assert!(continued > 0, "no split fell between equal hashes");
    for (n, name) in names.iter().enumerate() {
        assert_eq!(dir.get(name), Some(100 + n as u32));
        assert_eq!(dir.add(name, 1), Err(FsError::Exists));
    }
    let (mut seen, mut cookie) = (BTreeSet::new(), 0);
    loop {
        let (part, next) = dir.read(cookie, 1);
        for (name, _) in part {
            assert!(seen.insert(name), "once");
        }
        let Some(next) = next else { break };
        cookie = next;
    }
    assert_eq!(seen.len(), names.len() + 2);
    for name in &names {
        dir.delete(name).unwrap();
    }
    assert!(is_empty(&dir).unwrap());
}

#[test]
fn dots_and_renames_change_in_place() {
    let mut dir = Memory::new(1024, HashVersion::Tea, true, true);
    for n in 0..100 {
        dir.add(format!("name{n}").as_bytes(), 30 + n).unwrap();
    }
    assert!(dir.indexed);
    let Probe::Found(dotdot) = probe(&dir, b"..").unwrap() else { panic!("no ..") };
    assert_eq!(dotdot.ino, 2);
    set_ino(&mut dir, &dotdot, 99, file_type::DIR).unwrap();
    assert_eq!(dir.get(b".."), Some(99));
    let Probe::Found(found) = probe(&dir, b"name7").unwrap() else { panic!("no name7") };
    set_ino(&mut dir, &found, 1000, file_type::DIR).unwrap();
    assert_eq!(dir.get(b"name7"), Some(1000));
}

#[test]
fn mutated_blocks_give_errors_and_end() {
    for seed in 0..400u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Without checksums, so that the damage reaches the algorithms.
        let mut dir = Memory::new(1024, VERSIONS[seed as usize % 6], false, true);
        for n in 0..rng.random_range(5..800) {
            dir.add(format!("name{n}").as_bytes(), 30 + n).unwrap();
        }
        for _ in 0..rng.random_range(1..20) {
            let lblk = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..dir.blocks.len()) };
            let mut block = dir.blocks[lblk].to_vec();
            let reach = if rng.random_bool(0.7) { 80 } else { 1024 };
            let at = rng.random_range(0..reach);
            block[at] = rng.random();
            dir.blocks[lblk] = block.into();
        }
        for n in 0..50 {
            let _ = probe(&dir, format!("name{}", n * 16).as_bytes());
            let _ = dir.add(format!("more{n}").as_bytes(), 9);
            let _ = dir.delete(format!("name{n}").as_bytes());
        }
        let _ = is_empty(&dir);
        let (mut cookie, mut batches) = (0, 0);
        while let Ok(batch) = read_batch(&dir, cookie) {
            let Some(next) = batch.next else { break };
            assert!(next > cookie, "seed {seed}: progress");
            cookie = next;
            batches += 1;
            assert!(batches < 10_000, "seed {seed}: the end comes");
        }
    }
}
