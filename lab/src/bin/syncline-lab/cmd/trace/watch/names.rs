//! Names of files from inodes: looked up among the files that programs have open.
//!
//! The kernel's events have inodes only. A file that is written and synced is open in the program
//! that does it, and `/proc/PID/fd` has its path. Looking costs time, so it is done at most so
//! often ([`LOOK`], [`LOOK_ALL`]); an inode that is not found keeps its number.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::devices::number;
use crate::args::NameForm;

/// Pause between two looks at one program.
const LOOK: Duration = Duration::from_secs(1);
/// Pause between two looks at all programs.
const LOOK_ALL: Duration = Duration::from_secs(60);
/// Age of names at which all are forgotten: a file may be renamed, an inode used again.
const FORGET: Duration = Duration::from_secs(600);
/// Most names, and most programs.
const KNOWN_MAX: usize = 1 << 16;
/// Longest ending of a name that is not hashed.
const ENDING_MAX: usize = 8;
/// Bytes of a hash that are kept.
const HASH_BYTES: usize = 8;

/// Names of the files of the watched devices.
pub(super) struct Files {
    form: NameForm,
    salt: String,
    volumes: Vec<u32>,
    known: HashMap<(u32, u64), Box<str>>,
    looked: HashMap<u32, Instant>,
    looked_at_all: Option<Instant>,
    began: Instant,
}

impl Files {
    pub(super) fn new(form: NameForm, salt: String, volumes: Vec<u32>) -> Files {
        Files {
            form,
            salt,
            volumes,
            known: HashMap::new(),
            looked: HashMap::new(),
            looked_at_all: None,
            began: Instant::now(),
        }
    }

    /// The name of an inode; empty if it is not known. `process` wrote to it.
    pub(super) fn name(&mut self, volume: u32, inode: u64, process: u32) -> &str {
        if self.form == NameForm::None || inode == 0 {
            return "";
        }
        if !self.known.contains_key(&(volume, inode)) {
            self.look(process);
        }
        self.known.get(&(volume, inode)).map_or("", |name| name)
    }

    fn look(&mut self, process: u32) {
        let now = Instant::now();
        let due = |last: Option<&Instant>, pause| last.is_none_or(|last| now - *last >= pause);
        if now - self.began >= FORGET || self.known.len() >= KNOWN_MAX {
            self.began = now;
            self.known.clear();
        }
        if due(self.looked.get(&process), LOOK) {
            if self.looked.len() >= KNOWN_MAX {
                self.looked.clear();
            }
            self.looked.insert(process, now);
            self.open_files(&Path::new("/proc").join(process.to_string()));
        }
        if due(self.looked_at_all.as_ref(), LOOK_ALL) {
            self.looked_at_all = Some(now);
            for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
                let name = entry.file_name();
                if name.to_str().is_some_and(|name| name.parse::<u32>().is_ok()) {
                    self.open_files(&entry.path());
                }
            }
        }
    }

    /// Remembers the open files of a process. It may end meanwhile, and has none then.
    fn open_files(&mut self, process: &Path) {
        for entry in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
            let link = entry.path();
            let Ok(meta) = fs::metadata(&link) else { continue };
            let device = meta.dev();
            let volume = number(rustix::fs::major(device), rustix::fs::minor(device));
            if !meta.is_file() || !self.volumes.contains(&volume) {
                continue;
            }
            let Ok(path) = fs::read_link(&link) else { continue };
            let path = path.to_string_lossy();
            let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
            let name = match self.form {
                NameForm::Plain => path.to_owned(),
                _ => hashed(&self.salt, path),
            };
            self.known.insert((volume, meta.ino()), name.into());
        }
    }
}

/// A name as a hash with a secret, and its ending.
fn hashed(salt: &str, path: &str) -> String {
    let hash = Sha256::new().chain_update(salt).chain_update([0]).chain_update(path).finalize();
    let mut text = String::new();
    for byte in hash.iter().take(HASH_BYTES) {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    let ending = Path::new(path).extension().and_then(|ending| ending.to_str());
    let short = |ending: &&str| {
        ending.len() <= ENDING_MAX && ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    match ending.filter(short) {
        Some(ending) => format!("{text}.{ending}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::hashed;

    #[test]
    fn hashes_hide_the_path_and_keep_the_ending() {
        let one = hashed("salt", "/home/ann/mail.db");
        assert_eq!(one, hashed("salt", "/home/ann/mail.db"));
        assert!(one.len() == 19 && one.ends_with(".db"), "{one}");
        assert_ne!(one, hashed("other", "/home/ann/mail.db"));
        assert_eq!(hashed("salt", "/home/ann/.a name that says too much").len(), 16);
    }
}
