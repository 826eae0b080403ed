//! Threads whose synced files must survive the end of what serves them, and the ledger of what may
//! be found then.
//!
//! Writers change files of their own in place and replace others by rename; syncers sync any file;
//! churners make, read and remove files that nobody syncs. Every change is in the ledger before it
//! is made, every answer of a sync after it came: what is found after a crash must be in it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Random, fill};

mod files;
#[cfg(test)]
mod tests;

use files::{Changed, Replaced, SECTOR, Whole};

/// Sectors of one write, at most.
const WRITE_SECTORS_MAX: u64 = 160;
/// Bytes of an unsynced file, at most.
const CHURN_BYTES: u64 = 200_000;
/// Unsynced files of one churner, at most.
const CHURN_FILES: usize = 12;
/// Directories that all threads use.
const SHARED: u64 = 3;
/// Endings of names, which a mount may treat differently: plain and for a hot file.
const ENDINGS: [&str; 2] = ["", ".db"];
/// The ending of files that the mount treats as relaxed, where it has such.
const RELAXED: &str = ".cache";

/// Size of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Threads that change and sync files of their own.
    pub writers: u64,
    /// Threads that sync files of any writer.
    pub syncers: u64,
    /// Threads with files that nobody syncs.
    pub churners: u64,
    /// Files of one writer that are changed in place, and as many that are replaced.
    pub files: u64,
    /// Sectors of 512 bytes of a file that is changed in place, at most.
    pub sectors_max: u64,
}

/// Legal contents of all files, and the threads that change them.
pub struct Ledger {
    load: Load,
    seed: u64,
    /// Writer `nr` has the `files` ones from `nr * files` on.
    changed: Vec<Mutex<Changed>>,
    replaced: Vec<Mutex<Replaced>>,
    acknowledged: AtomicU64,
}

fn said(path: &Path, err: &io::Error) -> String {
    format!("{}: {err}", path.display())
}

/// A thread that failed has said so; what it left in the ledger is whole.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn contents(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(err) if err.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Removes a file that may be gone already.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(err) if err.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn sync_directory(dir: &Path, of: &Path) -> io::Result<()> {
    File::open(dir.join(of).parent().unwrap_or(dir))?.sync_all()
}

impl Ledger {
    /// A ledger of files that are not made yet.
    #[must_use]
    pub fn new(load: Load, seed: u64) -> Ledger {
        let ending = |nr: u64| ENDINGS[(nr % ENDINGS.len() as u64) as usize];
        let changed = (0..load.writers * load.files).map(|nr| {
            let relaxed = nr % 4 == 3;
            let ending = if relaxed { RELAXED } else { ending(nr) };
            Mutex::new(Changed {
                path: PathBuf::from(format!("{}/changed-{nr}{ending}", nr % SHARED)),
                seed: seed << 48 | nr << 32,
                relaxed,
                begun: 0,
                made: 0,
                synced: 0,
                sectors: Vec::new(),
                lens: vec![(0, 0)],
            })
        });
        let replaced = (0..load.writers * load.files).map(|nr| {
            let path = PathBuf::from(format!("{}/replaced-{nr}{}", nr % SHARED, ending(nr)));
            Mutex::new(Replaced {
                aside: path.with_file_name(format!("aside-{nr}")),
                path,
                seed: seed << 48 | 1 << 47 | nr << 32,
                newest: 0,
                allowed: vec![Whole::Missing],
            })
        });
        let (changed, replaced) = (changed.collect(), replaced.collect());
        Ledger { load, seed, changed, replaced, acknowledged: AtomicU64::new(0) }
    }

    /// Returns the number of syncs that have returned.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Makes the directories and the files that are changed in place, durably.
    pub fn prepare(&self, dir: &Path) -> io::Result<()> {
        for shared in (0..SHARED).map(|nr| nr.to_string()).chain(["churn".to_owned()]) {
            fs::create_dir(dir.join(&shared))?;
        }
        for changed in &self.changed {
            // Also of the relaxed ones the name is there from now on.
            let path = dir.join(&locked(changed).path);
            File::create(path)?.sync_all()?;
        }
        for shared in 0..SHARED {
            File::open(dir.join(shared.to_string()))?.sync_all()?;
        }
        File::open(dir)?.sync_all()
    }

    /// Runs all threads until `falling`, which is to be set before whatever serves `dir` is ended.
    /// `round` makes each run another one.
    pub fn work(&self, dir: &Path, round: u64, falling: &AtomicBool) -> Result<(), String> {
        let threads = self.load.writers + self.load.syncers + self.load.churners;
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads)
                .map(|nr| scope.spawn(move || self.thread(dir, nr, round, falling)))
                .collect();
            running.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))
            })
        })
    }

    fn thread(&self, dir: &Path, nr: u64, round: u64, falling: &AtomicBool) -> Result<(), String> {
        let Load { writers, syncers, .. } = self.load;
        let mut rng = Random::new(self.seed << 40 ^ round << 8 ^ nr);
        let mut churn = Vec::new();
        while !falling.load(Ordering::SeqCst) {
            let done = match nr {
                nr if nr < writers => self.write(dir, nr, &mut rng),
                nr if nr < writers + syncers => self.sync_any(dir, &mut rng),
                nr => churn_once(dir, nr, &mut rng, &mut churn),
            };
            match done {
                Err(said) if !falling.load(Ordering::SeqCst) => {
                    return Err(format!("thread {nr}: {said}"));
                }
                _ => (),
            }
        }
        Ok(())
    }

    /// Compares `dir` after a crash with what is allowed; all differences.
    #[must_use]
    pub fn differences(&self, dir: &Path) -> Vec<String> {
        let changed = self.changed.iter().filter_map(|of| {
            let of = locked(of);
            let read = fs::read(dir.join(&of.path)).map_err(|err| err.to_string());
            let seen = read.and_then(|bytes| of.recognise(&bytes));
            seen.err().map(|err| format!("{}: {err}", of.path.display()))
        });
        let replaced = self.replaced.iter().filter_map(|of| {
            let of = locked(of);
            let read = contents(&dir.join(&of.path)).map_err(|err| err.to_string());
            let seen = read.and_then(|bytes| of.recognise(bytes.as_deref()));
            seen.err().map(|err| format!("{}: {err}", of.path.display()))
        });
        changed.chain(replaced).collect()
    }

    /// Compares `dir` after a recovery with what is allowed; what is there is the base of what may
    /// be there after the next crash.
    pub fn adopt(&self, dir: &Path) -> Result<(), String> {
        let differences = self.differences(dir);
        if !differences.is_empty() {
            return Err(differences.join("\n"));
        }
        for of in &self.changed {
            let mut of = locked(of);
            let bytes = fs::read(dir.join(&of.path)).map_err(|err| said(&of.path, &err))?;
            let states = of.recognise(&bytes)?;
            of.adopt(states);
        }
        for of in &self.replaced {
            let mut of = locked(of);
            let path = dir.join(&of.path);
            let found = contents(&path).map_err(|err| said(&of.path, &err))?;
            match of.recognise(found.as_deref())? {
                Whole::Anything => {
                    remove(&path)
                        .and_then(|()| sync_directory(dir, &of.path))
                        .map_err(|err| said(&of.path, &err))?;
                    of.allowed = vec![Whole::Missing];
                }
                whole => of.allowed = vec![whole],
            }
        }
        Ok(())
    }

    fn count(&self) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    /// One step of writer `nr`.
    fn write(&self, dir: &Path, nr: u64, rng: &mut Random) -> Result<(), String> {
        let which = (nr * self.load.files + rng.below(self.load.files)) as usize;
        if rng.one_in(4) {
            let of = &self.replaced[which];
            let done = self.replace(dir, of, rng);
            return done.map_err(|err| said(&locked(of).path, &err));
        }
        let of = &self.changed[which];
        let done = match rng.below(12) {
            0..7 => self.change(dir, of, rng),
            7 => cut(dir, of, rng),
            8 => read(dir, of, rng),
            _ => self.sync(dir, of, rng),
        };
        done.map_err(|err| said(&locked(of).path, &err))
    }

    fn sync_any(&self, dir: &Path, rng: &mut Random) -> Result<(), String> {
        let of = &self.changed[rng.index(self.changed.len())];
        self.sync(dir, of, rng).map_err(|err| said(&locked(of).path, &err))
    }

    /// Overwrites, appends, or writes behind a hole; now and then with O_DSYNC.
    fn change(&self, dir: &Path, of: &Mutex<Changed>, rng: &mut Random) -> io::Result<()> {
        let durable = rng.one_in(8);
        let (path, written, (version, bytes)) = {
            let mut of = locked(of);
            let len = of.len();
            let from = match rng.below(8) {
                0 => len + rng.below(32),
                1..4 => len,
                _ => rng.below(len),
            };
            let from = from.min(self.load.sectors_max - 1);
            let to = (from + 1 + rng.below(WRITE_SECTORS_MAX)).min(self.load.sectors_max);
            (dir.join(&of.path), from..to, of.begin(from, to))
        };
        let flags = if durable { nix::libc::O_DSYNC } else { 0 };
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        file.write_all_at(&bytes, written.start * SECTOR)?;
        let mut of = locked(of);
        of.made = version;
        if durable {
            of.acknowledge_write(version, written);
            self.count();
        }
        Ok(())
    }

    fn sync(&self, dir: &Path, of: &Mutex<Changed>, rng: &mut Random) -> io::Result<()> {
        let (path, made) = {
            let of = locked(of);
            (dir.join(&of.path), of.made)
        };
        let file = OpenOptions::new().write(true).open(path)?;
        if rng.one_in(2) {
            file.sync_all()?
        } else {
            file.sync_data()?
        }
        locked(of).acknowledge(made);
        self.count();
        Ok(())
    }

    /// A new version aside and over the name; or the name goes, or comes back by itself.
    fn replace(&self, dir: &Path, of: &Mutex<Replaced>, rng: &mut Random) -> io::Result<()> {
        let (path, aside, version, bytes, missing) = {
            let mut of = locked(of);
            of.newest += 1;
            let missing = of.allowed.last() == Some(&Whole::Missing);
            (of.path.clone(), of.aside.clone(), of.newest, of.bytes(of.newest), missing)
        };
        let to = dir.join(&path);
        let allow = |whole| locked(of).allowed.push(whole);
        let acknowledge = |whole| {
            locked(of).acknowledge(whole);
            self.count();
        };
        if missing && rng.one_in(2) {
            allow(Whole::Anything);
            let mut file = OpenOptions::new().write(true).create_new(true).open(&to)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            acknowledge(Whole::Version(version));
            return Ok(());
        }
        if !missing && rng.one_in(8) {
            allow(Whole::Missing);
            remove(&to)?;
            sync_directory(dir, &path)?;
            acknowledge(Whole::Missing);
            return Ok(());
        }
        let relaxed = rng.one_in(6);
        let aside = dir.join(aside.with_extension(if relaxed { &RELAXED[1..] } else { "new" }));
        let mut file = File::create(&aside)?;
        file.write_all(&bytes)?;
        // Without this sync it is auto_da_alloc that has the data there before the name, where the
        // name leads to another file; a relaxed file has it with its next sync only.
        if missing || rng.one_in(2) {
            file.sync_data()?;
        }
        drop(file);
        let whole = Whole::Version(version);
        allow(if relaxed { Whole::Anything } else { whole });
        fs::rename(&aside, &to)?;
        if relaxed || rng.one_in(3) {
            File::open(&to)?.sync_all()?;
        } else if rng.one_in(2) {
            sync_directory(dir, &path)?;
        } else {
            return Ok(());
        }
        acknowledge(whole);
        Ok(())
    }
}

fn cut(dir: &Path, of: &Mutex<Changed>, rng: &mut Random) -> io::Result<()> {
    let (path, to, version) = {
        let mut of = locked(of);
        let to = rng.below(of.len() + 1);
        (dir.join(&of.path), to, of.begin_cut(to))
    };
    OpenOptions::new().write(true).open(path)?.set_len(to * SECTOR)?;
    locked(of).made = version;
    Ok(())
}

/// Reads a file and compares it with the data written. Only the writer of the file may call it.
fn read(dir: &Path, of: &Mutex<Changed>, rng: &mut Random) -> io::Result<()> {
    let (path, from, count) = {
        let of = locked(of);
        let from = rng.below(of.len());
        (dir.join(&of.path), from, (of.len() - from).min(WRITE_SECTORS_MAX))
    };
    let mut bytes = vec![0; (count * SECTOR) as usize];
    File::open(path)?.read_exact_at(&mut bytes, from * SECTOR)?;
    locked(of).check_now(from, &bytes).map_err(io::Error::other)
}

/// Makes, reads or removes a file that nobody syncs.
fn churn_once(
    dir: &Path,
    nr: u64,
    rng: &mut Random,
    files: &mut Vec<(PathBuf, u64, u64)>,
) -> Result<(), String> {
    let dir = dir.join("churn");
    if files.len() >= CHURN_FILES || (!files.is_empty() && rng.one_in(3)) {
        let (path, seed, len) = files.swap_remove(rng.index(files.len()));
        let mut bytes = Vec::new();
        File::open(&path)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .and_then(|_| fs::remove_file(&path))
            .map_err(|err| said(&path, &err))?;
        let mut wanted = vec![0; len as usize];
        fill(seed, 0, &mut wanted);
        return if bytes == wanted {
            Ok(())
        } else {
            Err(format!("{}: other bytes than were written", path.display()))
        };
    }
    let (seed, len) = (rng.bits(), rng.below(CHURN_BYTES));
    // A number of before may be there after a crash: the file is written anew.
    let path = dir.join(format!("{nr}-{}", seed % 64));
    if files.iter().any(|(of, ..)| *of == path) {
        return Ok(());
    }
    let mut bytes = vec![0; len as usize];
    fill(seed, 0, &mut bytes);
    fs::write(&path, bytes).map_err(|err| said(&path, &err))?;
    files.push((path, seed, len));
    Ok(())
}
