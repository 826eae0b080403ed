//! The directory of a watch: its lock, its secret, the numbers of its files, and their limit.
//!
//! ```text
//!   DIR/watch.json                                 secret and next number; only its owner reads it
//!   DIR/watch.lock                                 held by the one that writes
//!   DIR/mmcblk0-20260131T235958Z-000017.trace      a file that is whole
//!   DIR/mmcblk0-20260201T005958Z-000018.trace.partial   one that is being written
//! ```
//!
//! A file that a kill or a power cut left partial is whole up to its last footer: the next start
//! gives it its name, or removes it where there is none.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use syncline_lab::trace::TraceReader;

use syncline_cli::error::{Failure, Result};
use syncline_cli::format;

const SCHEMA: &str = "syncline.watch/1";
/// Ending of a file that is being written.
pub(super) const PARTIAL: &str = "partial";
/// Bytes of the secret.
const SALT_BYTES: usize = 16;

/// The directory, locked.
pub(super) struct State {
    dir: PathBuf,
    /// Secret of the hashed names.
    pub(super) salt: String,
    next: u64,
    keep_bytes: u64,
    _lock: File,
}

impl State {
    /// Creates the directory, or continues in it.
    pub(super) fn open(dir: &Path, keep_bytes: u64) -> Result<State> {
        let failed = |err: std::io::Error| Failure::host(dir, &err);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(dir.join("watch.lock")).map_err(failed)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let text = "another watch writes there; end it, or name another directory";
            return Err(Failure::Failed(format!("{}: {text}", dir.display())));
        }
        let (salt, next) = read(&dir.join("watch.json"))?;
        let salt = match salt {
            Some(salt) => salt,
            None => new_salt()?,
        };
        let state = State { dir: dir.to_owned(), salt, next, keep_bytes, _lock: lock };
        state.save()?;
        state.name_left_over()?;
        state.remove_old()?;
        Ok(state)
    }

    /// The path of a new file.
    pub(super) fn next(&mut self, device: &str, unix_s: u64) -> Result<PathBuf> {
        let number = self.next;
        self.next += 1;
        self.save()?;
        let time = format::seconds(i64::try_from(unix_s).unwrap_or(0));
        let time = time.replace(['-', ':'], "").replace(' ', "T");
        // `/` in the name of a device is `!` in sysfs.
        Ok(self.dir.join(format!("{device}-{time}Z-{number:06}.trace")))
    }

    /// Removes the oldest files while all are above the limit.
    pub(super) fn remove_old(&self) -> Result<()> {
        let mut files = self.files()?;
        files.retain(|(_, path)| path.extension().is_some_and(|ending| ending == "trace"));
        let sizes = files.iter().map(|(_, path)| fs::metadata(path).map_or(0, |meta| meta.len()));
        let sizes: Vec<u64> = sizes.collect();
        let mut all: u64 = sizes.iter().sum();
        for ((_, path), bytes) in files.iter().zip(sizes) {
            if all <= self.keep_bytes {
                break;
            }
            fs::remove_file(path).map_err(|err| Failure::host(path, &err))?;
            all = all.saturating_sub(bytes);
        }
        Ok(())
    }

    fn save(&self) -> Result<()> {
        let path = self.dir.join("watch.json");
        let temporary = self.dir.join("watch.json.tmp");
        let document = json!({ "schema": SCHEMA, "salt": self.salt, "next": self.next });
        let write = || {
            let mut options = OpenOptions::new();
            let file = options.create(true).truncate(true).write(true).mode(0o600);
            let mut file = file.open(&temporary)?;
            std::io::Write::write_all(&mut file, format::document(&document).as_bytes())?;
            file.sync_data()?;
            fs::rename(&temporary, &path)
        };
        write().map_err(|err| Failure::host(&self.dir, &err))
    }

    /// Files of ours by their numbers.
    fn files(&self) -> Result<Vec<(u64, PathBuf)>> {
        let failed = |err: std::io::Error| Failure::host(&self.dir, &err);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let stem = name.strip_suffix(".partial").unwrap_or(&name).strip_suffix(".trace");
            let number = stem.and_then(|stem| stem.rsplit('-').next()?.parse().ok());
            found.extend(number.map(|number| (number, path)));
        }
        found.sort();
        Ok(found)
    }

    /// Gives files that were not ended their names, and removes those without a record.
    fn name_left_over(&self) -> Result<()> {
        for (_, path) in self.files()? {
            if path.extension().is_none_or(|ending| ending != PARTIAL) {
                continue;
            }
            let failed = |err: std::io::Error| Failure::host(&path, &err);
            let reader = File::open(&path).map_err(failed).map(TraceReader::open)?;
            let records = reader.map_or(0, |reader| reader.records());
            let done = match records {
                0 => fs::remove_file(&path),
                _ => fs::rename(&path, path.with_extension("")),
            };
            done.map_err(failed)?;
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<(Option<String>, u64)> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok((None, 1)),
        Err(err) => return Err(Failure::host(path, &err)),
    };
    let document: Value = serde_json::from_str(&text).unwrap_or_default();
    match (document["schema"].as_str(), document["salt"].as_str(), document["next"].as_u64()) {
        (Some(SCHEMA), Some(salt), Some(next)) => Ok((Some(salt.to_owned()), next)),
        _ => {
            let text = "no state of a watch; remove it, or name another directory";
            Err(Failure::Corrupt(format!("{}: {text}", path.display())))
        }
    }
}

fn new_salt() -> Result<String> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; SALT_BYTES];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|err| Failure::host(path, &err))?;
    Ok(bytes.map(|byte| format!("{byte:02x}")).concat())
}
