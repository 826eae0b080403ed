//! Threads that make, change, move and remove files of their own in directories that they share,
//! and know at any moment what must be there.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::{Random, fill};

/// Directories that all threads use.
const SHARED: u64 = 4;
/// Bytes of one file, at most.
const FILE_BYTES: u64 = 300_000;
/// Bytes that are overwritten together: no multiple of a block, so that blocks change in part.
const PIECE: u64 = 1000;
/// Pieces of one overwrite, at most.
const PIECES_MAX: u64 = 40;
/// Endings of names, which a mount may treat differently: plain, for a relaxed and for a hot file.
const ENDINGS: [&str; 3] = ["", ".cache", ".db"];

/// Size of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Threads, each with files of its own.
    pub threads: u64,
    /// Files of one thread, at most.
    pub files_max: usize,
    /// The volume may be full: what finds no room is undone, and is no error.
    pub may_be_full: bool,
    /// Seed of the operations.
    pub seed: u64,
}

/// Result of one thread: contents by path below the directory of the run.
pub type Tree = BTreeMap<PathBuf, Content>;

/// Contents of a file: the stream of its seed up to its length, with the streams of other seeds in
/// the pieces that were overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    seed: u64,
    len: u64,
    over: BTreeMap<u64, u64>,
}

/// Runs the threads in `dir` while `more` is true for the number of rounds a thread has done;
/// every file is then as its thread left it.
pub fn run(
    dir: &Path,
    load: Load,
    more: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Vec<Tree>, String> {
    for nr in 0..SHARED {
        fs::create_dir_all(dir.join(nr.to_string())).map_err(|err| said(dir, &err))?;
    }
    let trees = std::thread::scope(|scope| {
        let running: Vec<_> = (0..load.threads)
            .map(|nr| scope.spawn(move || Worker::new(dir, nr, load).work(more)))
            .collect();
        let joined = running.into_iter().map(|thread| {
            thread.join().map_err(|_| "a thread panicked".to_owned()).and_then(|tree| tree)
        });
        joined.collect::<Result<Vec<Tree>, String>>()
    })?;
    verify(dir, &trees)?;
    Ok(trees)
}

/// Compares `dir` with what the threads left: nothing is missing, nothing is different, nothing
/// else is there.
pub fn verify(dir: &Path, trees: &[Tree]) -> Result<(), String> {
    for (path, content) in trees.iter().flatten() {
        content.check(&dir.join(path))?;
    }
    let mut found = 0;
    for nr in 0..SHARED {
        let dir = dir.join(nr.to_string());
        found += fs::read_dir(&dir).map_err(|err| said(&dir, &err))?.count();
    }
    let wanted: usize = trees.iter().map(BTreeMap::len).sum();
    if found != wanted {
        return Err(format!("{found} names in {}, there should be {wanted}", dir.display()));
    }
    Ok(())
}

impl Content {
    fn check(&self, path: &Path) -> Result<(), String> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(|err| said(path, &err))?;
        if bytes.len() as u64 != self.len {
            return Err(format!("{} has {} bytes, not {}", path.display(), bytes.len(), self.len));
        }
        let wanted = self.bytes(0, self.len);
        match bytes.iter().zip(&wanted).position(|(got, wanted)| got != wanted) {
            None => Ok(()),
            Some(at) => Err(format!("{}: byte {at} of {} is wrong", path.display(), self.len)),
        }
    }

    /// The bytes from `from` to `end`.
    fn bytes(&self, from: u64, end: u64) -> Vec<u8> {
        let mut bytes = vec![0; end.saturating_sub(from) as usize];
        fill(self.seed, from, &mut bytes);
        for (piece, seed) in self.over.range(from / PIECE..) {
            let (start, stop) = ((piece * PIECE).max(from), ((piece + 1) * PIECE).min(end));
            if start < stop {
                fill(*seed, start, &mut bytes[(start - from) as usize..(stop - from) as usize]);
            }
        }
        bytes
    }
}

fn said(path: &Path, err: &io::Error) -> String {
    format!("{}: {err}", path.display())
}

struct Worker<'a> {
    dir: &'a Path,
    nr: u64,
    load: Load,
    rng: Random,
    made: u64,
    tree: Tree,
}

impl Worker<'_> {
    fn new(dir: &Path, nr: u64, load: Load) -> Worker<'_> {
        let rng = Random::new(load.seed << 8 | nr);
        Worker { dir, nr, load, rng, made: 0, tree: Tree::new() }
    }

    fn work(mut self, more: &(dyn Fn(u64) -> bool + Sync)) -> Result<Tree, String> {
        let mut round = 0;
        while more(round) {
            self.round().map_err(|said| format!("thread {}, round {round}: {said}", self.nr))?;
            round += 1;
        }
        Ok(self.tree)
    }

    fn round(&mut self) -> Result<(), String> {
        let old = {
            let at = self.rng.index(self.tree.len());
            self.tree.iter().nth(at).map(|(path, content)| (path.clone(), content.clone()))
        };
        let Some((path, content)) = old.filter(|_| !self.rng.one_in(4)) else {
            return self.make();
        };
        let at = self.dir.join(&path);
        let (what, done) = match self.rng.below(10) {
            0 | 1 => ("read", content.check(&at).map_err(io::Error::other)),
            2 => ("append", self.append(&path, content)),
            3 => ("truncate", self.cut(&path, content)),
            4 | 5 => ("rename", self.rename(path, content)),
            6 => ("link", self.link(path, content)),
            7 | 8 => ("overwrite", self.overwrite(&path, content)),
            _ => {
                self.tree.remove(&path);
                ("unlink", fs::remove_file(&at))
            }
        };
        done.map_err(|err| format!("{what}: {}", said(&at, &err)))?;
        while self.tree.len() > self.load.files_max {
            let Some((path, content)) = self.tree.pop_first() else { break };
            content.check(&self.dir.join(&path))?;
            fs::remove_file(self.dir.join(&path)).map_err(|err| said(&path, &err))?;
        }
        if self.rng.one_in(20) { self.list() } else { Ok(()) }
    }

    fn name(&mut self) -> PathBuf {
        self.made += 1;
        let shared = self.rng.below(SHARED);
        let ending = ENDINGS[self.rng.index(ENDINGS.len())];
        PathBuf::from(format!("{shared}/{}-{}{ending}", self.nr, self.made))
    }

    /// Returns false for ENOSPC where the volume may be full.
    fn roomy(&self, done: io::Result<()>) -> io::Result<bool> {
        match done {
            Err(err) if self.load.may_be_full && err.kind() == ErrorKind::StorageFull => Ok(false),
            done => done.map(|()| true),
        }
    }

    fn make(&mut self) -> Result<(), String> {
        let path = self.name();
        let (seed, len) = (self.nr << 32 | self.made, self.rng.below(FILE_BYTES));
        let content = Content { seed, len, over: BTreeMap::new() };
        let at = self.dir.join(&path);
        let make = || -> io::Result<bool> {
            let mut file = None;
            let open = OpenOptions::new().write(true).create_new(true).open(&at);
            if !self.roomy(open.map(|made| file = Some(made)))? {
                return Ok(false);
            }
            let Some(mut file) = file else { return Ok(false) };
            if !self.roomy(file.write_all(&content.bytes(0, len)))? {
                fs::remove_file(&at)?;
                return Ok(false);
            }
            if seed.is_multiple_of(5) { file.sync_all().map(|()| true) } else { Ok(true) }
        };
        if make().map_err(|err| format!("make: {}", said(&at, &err)))? {
            self.tree.insert(path, content);
        }
        Ok(())
    }

    fn append(&mut self, path: &Path, old: Content) -> io::Result<()> {
        let from = old.len;
        let len = from + self.rng.below(FILE_BYTES - from + 1);
        let grown = Content { len, ..old };
        let file = OpenOptions::new().append(true).open(self.dir.join(path))?;
        if !self.roomy(file.write_all_at(&grown.bytes(from, len), from))? {
            return file.set_len(from);
        }
        if self.rng.one_in(4) {
            file.sync_data()?;
        }
        self.tree.insert(path.to_owned(), grown);
        Ok(())
    }

    /// Some pieces get other bytes. They have their blocks: there is always room.
    fn overwrite(&mut self, path: &Path, mut content: Content) -> io::Result<()> {
        let first = self.rng.below(content.len.div_ceil(PIECE));
        let end = first + 1 + self.rng.below(PIECES_MAX);
        let seed = self.rng.bits();
        content.over.extend((first..end).map(|piece| (piece, seed)));
        let (from, to) = (first * PIECE, (end * PIECE).min(content.len));
        let file = OpenOptions::new().write(true).open(self.dir.join(path))?;
        file.write_all_at(&content.bytes(from, to), from)?;
        if self.rng.one_in(3) {
            file.sync_data()?;
        }
        self.tree.insert(path.to_owned(), content);
        Ok(())
    }

    fn cut(&mut self, path: &Path, old: Content) -> io::Result<()> {
        let cut = Content { len: self.rng.below(old.len + 1), ..old };
        OpenOptions::new().write(true).open(self.dir.join(path))?.set_len(cut.len)?;
        self.tree.insert(path.to_owned(), cut);
        Ok(())
    }

    /// To a new name, or over a file that is there.
    fn rename(&mut self, path: PathBuf, content: Content) -> io::Result<()> {
        let over = self.tree.keys().find(|to| **to != path).cloned();
        let to = over.filter(|_| self.rng.one_in(3)).unwrap_or_else(|| self.name());
        if self.roomy(fs::rename(self.dir.join(&path), self.dir.join(&to)))? {
            self.tree.remove(&path);
            self.tree.insert(to, content);
        }
        Ok(())
    }

    /// A second name for a moment, and the first one removed.
    ///
    /// Linux counts a removed name of a FUSE mount twice if the directory is listed meanwhile,
    /// takes the file for one without names and refuses the link; the next stat puts the count
    /// right, but not where the kernel keeps written data: then it asks for no attributes.
    fn link(&mut self, path: PathBuf, content: Content) -> io::Result<()> {
        let to = self.name();
        let link = || fs::hard_link(self.dir.join(&path), self.dir.join(&to));
        let linked = match link() {
            Err(err) if err.kind() == ErrorKind::NotFound => {
                fs::metadata(self.dir.join(&path))?;
                match link() {
                    Err(err) if err.kind() == ErrorKind::NotFound => return Ok(()),
                    done => done,
                }
            }
            done => done,
        };
        if self.roomy(linked)? {
            fs::remove_file(self.dir.join(&path))?;
            self.tree.remove(&path);
            self.tree.insert(to, content);
        }
        Ok(())
    }

    /// Every name of this thread is listed once.
    fn list(&self) -> Result<(), String> {
        let own = format!("{}-", self.nr);
        let mut names = Vec::new();
        for shared in 0..SHARED {
            let dir = self.dir.join(shared.to_string());
            for entry in fs::read_dir(&dir).map_err(|err| said(&dir, &err))? {
                let name = entry.map_err(|err| said(&dir, &err))?.file_name();
                if name.to_string_lossy().starts_with(&own) {
                    names.push(Path::new(&shared.to_string()).join(name));
                }
            }
        }
        names.sort();
        if names.iter().eq(self.tree.keys()) {
            return Ok(());
        }
        Err(format!("the directories list {names:?}, there is {:?}", self.tree.keys()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_threads_left_is_there_and_changes_of_it_are_found() {
        let scratch = tempfile::tempdir_in(crate::scratch_dir()).unwrap();
        let dir = scratch.path();
        let load = Load { threads: 3, files_max: 40, may_be_full: false, seed: 1 };
        let trees = run(dir, load, &|round| round < 30).unwrap();
        verify(dir, &trees).unwrap();
        let (path, content) = trees.iter().flatten().find(|(_, c)| c.len > 1).unwrap();
        fs::write(dir.join("0/more"), "").unwrap();
        assert!(verify(dir, &trees).unwrap_err().contains("names in"));
        fs::remove_file(dir.join("0/more")).unwrap();
        let mut bytes = content.bytes(0, content.len);
        bytes[1] ^= 1;
        fs::write(dir.join(path), &bytes).unwrap();
        assert!(verify(dir, &trees).unwrap_err().contains("byte 1 of"));
        fs::write(dir.join(path), &bytes[1..]).unwrap();
        assert!(verify(dir, &trees).unwrap_err().contains("bytes, not"));
        fs::remove_file(dir.join(path)).unwrap();
        assert!(verify(dir, &trees).unwrap_err().contains("No such file"));
    }
}
