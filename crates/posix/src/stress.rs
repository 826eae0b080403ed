//! Threads that make, change, move and remove files of their own in directories that they share,
//! and know at any moment what must be there.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use syncline_testkit::{Random, fill};

/// Directories that all threads use.
const SHARED: u64 = 4;
/// Files of one thread, at most.
const FILES_MAX: usize = 40;
/// Bytes of one file, at most.
const FILE_BYTES: u64 = 300_000;

/// What one thread left: contents by path below the directory of the run. A file holds the stream
/// of its seed up to its length.
pub type Tree = BTreeMap<PathBuf, Content>;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    seed: u64,
    len: u64,
}

/// Runs `threads` threads in `dir` while `more` is true for the number of rounds a thread has done;
/// every file is then as its thread left it.
///
/// # Errors
/// The first thing that was not as it should be, with the thread's number and round.
pub fn run(
    dir: &Path,
    threads: u64,
    seed: u64,
    more: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Vec<Tree>, String> {
    for nr in 0..SHARED {
        fs::create_dir_all(dir.join(nr.to_string())).map_err(|err| said(dir, &err))?;
    }
    let trees = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|nr| scope.spawn(move || Worker::new(dir, nr, seed).work(more)))
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
///
/// # Errors
/// The first difference.
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
    fn check(self, path: &Path) -> Result<(), String> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(|err| said(path, &err))?;
        if bytes.len() as u64 != self.len {
            return Err(format!("{} has {} bytes, not {}", path.display(), bytes.len(), self.len));
        }
        let mut wanted = vec![0; bytes.len()];
        fill(self.seed, 0, &mut wanted);
        match bytes.iter().zip(&wanted).position(|(got, wanted)| got != wanted) {
            None => Ok(()),
            Some(at) => Err(format!("{}: byte {at} of {} is wrong", path.display(), self.len)),
        }
    }

    /// The bytes from `from` to its end.
    fn bytes(self, from: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.len.saturating_sub(from) as usize];
        fill(self.seed, from, &mut bytes);
        bytes
    }
}

fn said(path: &Path, err: &std::io::Error) -> String {
    format!("{}: {err}", path.display())
}

struct Worker<'a> {
    dir: &'a Path,
    nr: u64,
    rng: Random,
    made: u64,
    tree: Tree,
}

impl Worker<'_> {
    fn new(dir: &Path, nr: u64, seed: u64) -> Worker<'_> {
        let rng = Random::new(seed << 8 | nr);
        Worker { dir, nr, rng, made: 0, tree: Tree::new() }
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
            self.tree.iter().nth(at).map(|(path, content)| (path.clone(), *content))
        };
        let Some((path, content)) = old.filter(|_| !self.rng.one_in(4)) else {
            return self.make();
        };
        let at = self.dir.join(&path);
        let (what, done) = match self.rng.below(8) {
            0 | 1 => ("read", content.check(&at).map_err(std::io::Error::other)),
            2 => ("append", self.append(&path, content)),
            3 => ("truncate", self.cut(&path, content)),
            4 | 5 => ("rename", self.rename(path, content)),
            6 => ("link", self.link(path, content)),
            _ => {
                self.tree.remove(&path);
                ("unlink", fs::remove_file(&at))
            }
        };
        done.map_err(|err| format!("{what}: {}", said(&at, &err)))?;
        while self.tree.len() > FILES_MAX {
            let Some((path, content)) = self.tree.pop_first() else { break };
            content.check(&self.dir.join(&path))?;
            fs::remove_file(self.dir.join(&path)).map_err(|err| said(&path, &err))?;
        }
        if self.rng.one_in(20) { self.list() } else { Ok(()) }
    }

    fn name(&mut self) -> PathBuf {
        self.made += 1;
        let shared = self.rng.below(SHARED);
        PathBuf::from(format!("{shared}/{}-{}", self.nr, self.made))
    }

    fn make(&mut self) -> Result<(), String> {
        let path = self.name();
        let content = Content { seed: self.nr << 32 | self.made, len: self.rng.below(FILE_BYTES) };
        let at = self.dir.join(&path);
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&at)?;
            file.write_all(&content.bytes(0))?;
            if content.seed.is_multiple_of(5) { file.sync_all() } else { Ok(()) }
        };
        write().map_err(|err| said(&at, &err))?;
        self.tree.insert(path, content);
        Ok(())
    }

    fn append(&mut self, path: &Path, old: Content) -> std::io::Result<()> {
        let grown = Content { len: old.len + self.rng.below(FILE_BYTES - old.len + 1), ..old };
        let file = OpenOptions::new().append(true).open(self.dir.join(path))?;
        file.write_all_at(&grown.bytes(old.len), old.len)?;
        if self.rng.one_in(4) {
            file.sync_data()?;
        }
        self.tree.insert(path.to_owned(), grown);
        Ok(())
    }

    fn cut(&mut self, path: &Path, old: Content) -> std::io::Result<()> {
        let cut = Content { len: self.rng.below(old.len + 1), ..old };
        OpenOptions::new().write(true).open(self.dir.join(path))?.set_len(cut.len)?;
        self.tree.insert(path.to_owned(), cut);
        Ok(())
    }

    /// To a new name, or over a file that is there.
    fn rename(&mut self, path: PathBuf, content: Content) -> std::io::Result<()> {
        let over = self.tree.keys().find(|to| **to != path).cloned();
        let to = over.filter(|_| self.rng.one_in(3)).unwrap_or_else(|| self.name());
        fs::rename(self.dir.join(&path), self.dir.join(&to))?;
        self.tree.remove(&path);
        self.tree.insert(to, content);
        Ok(())
    }

    /// A second name for a moment, and the first one removed.
    ///
    /// Linux counts a removed name of a FUSE mount twice if the directory is listed meanwhile,
    /// takes the file for one without names and refuses the link; the next stat puts the count
    /// right.
    fn link(&mut self, path: PathBuf, content: Content) -> std::io::Result<()> {
        let to = self.name();
        let link = || fs::hard_link(self.dir.join(&path), self.dir.join(&to));
        match link() {
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => {
                fs::metadata(self.dir.join(&path))?;
                link()?;
            }
            done => done?,
        }
        fs::remove_file(self.dir.join(&path))?;
        self.tree.remove(&path);
        self.tree.insert(to, content);
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
        let scratch = tempfile::tempdir_in(syncline_testkit::scratch_dir()).unwrap();
        let dir = scratch.path();
        let trees = run(dir, 3, 1, &|round| round < 30).unwrap();
        verify(dir, &trees).unwrap();
        let (path, content) = trees.iter().flatten().find(|(_, c)| c.len > 1).unwrap();
        fs::write(dir.join("0/more"), "").unwrap();
        assert!(verify(dir, &trees).unwrap_err().contains("names in"));
        fs::remove_file(dir.join("0/more")).unwrap();
        let mut bytes = content.bytes(0);
        bytes[1] ^= 1;
        fs::write(dir.join(path), &bytes).unwrap();
        assert!(verify(dir, &trees).unwrap_err().contains("byte 1 of"));
        fs::write(dir.join(path), &bytes[1..]).unwrap();
        assert!(verify(dir, &trees).unwrap_err().contains("bytes, not"));
        fs::remove_file(dir.join(path)).unwrap();
        assert!(verify(dir, &trees).unwrap_err().contains("No such file"));
    }
}
