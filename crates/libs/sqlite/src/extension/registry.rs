//! Images that are open in this process, each with the number of its open files.
//!
//! The lock is held while an image is opened or closed, so that one that is being closed is not
//! found busy by this process. Tested in `tests/it/extension.rs`.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;
use rusqlite::ffi;
use syncline::{Disk, Error, OpenOptions};

use super::disk_fs::DiskFs;
use crate::file::VfsFile;
use crate::state::State;
use crate::store::Store;
use crate::volume_fs::VolumeFs;

/// Linux's number for an image that another process has.
const EBUSY: i32 = 16;
const EIO: i32 = 5;

/// A result code of SQLite, and the reason for people.
pub(crate) type Failed = (i32, String);

struct Image {
    disk: Disk,
    files: State,
    /// As they were given, and what they mean.
    options: (String, OpenOptions),
}

struct Entry {
    image: Arc<Image>,
    open_files: usize,
}

/// By the canonical path on the host.
static IMAGES: Mutex<BTreeMap<String, Entry>> = Mutex::new(BTreeMap::new());

/// Forks that this process came from, as far as the extension was loaded before them.
pub(crate) static FORKS: AtomicU32 = AtomicU32::new(0);

/// The last reason of a failed open.
static SAID: Mutex<String> = Mutex::new(String::new());

/// Counts an open file; dropped after the file, with the last one it closes the image.
struct Use(String);

impl Drop for Use {
    fn drop(&mut self) {
        let mut images = IMAGES.lock();
        let Some(entry) = images.get_mut(&self.0) else { return };
        entry.open_files -= 1;
        if entry.open_files > 0 {
            return;
        }
        let Some(entry) = images.remove(&self.0) else { return };
        if let Err(err) = entry.image.disk.close() {
            // SQLite asks nobody after a close. What was synced is in the journal.
            say(&err.at(&self.0).text);
        }
    }
}

/// Remembers why something failed.
pub(crate) fn say(reason: &str) {
    reason.clone_into(&mut SAID.lock());
}

/// The last reason; empty before the first.
pub(crate) fn said() -> String {
    SAID.lock().clone()
}

/// The options of an image from the parameter `options` of a URI and those that are options by
/// their own names; `None` without any.
pub(crate) fn options_of(
    options: Option<&str>,
    named: [(&str, Option<&str>); 2],
) -> Option<String> {
    let named = named.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    let list: Vec<String> = options.map(str::to_owned).into_iter().chain(named).collect();
    (!list.is_empty()).then(|| list.join(","))
}

/// Opens a file in an image, and the image with the first one. `options` are of `mount -o`; without
/// them an image that is open is taken as it is. Returns the file and the flags it has.
///
/// # Errors
/// `SQLITE_BUSY` for an image that another process has, `SQLITE_CANTOPEN` and what
/// [`State::open`] says otherwise.
pub(crate) fn open(
    host: &str,
    path: &str,
    options: Option<&str>,
    flags: i32,
) -> Result<(VfsFile, i32), Failed> {
    let mut images = IMAGES.lock();
    if !images.contains_key(host) {
        let image = Arc::new(open_image(host, options.unwrap_or_default()).map_err(failed)?);
        images.insert(host.to_owned(), Entry { image, open_files: 0 });
    }
    let Some(entry) = images.get_mut(host) else { return Err(misuse(host, "is gone")) };
    let image = Arc::clone(&entry.image);
    entry.open_files += 1;
    drop(images);
    // From here on an early return closes an image that nobody else uses.
    let used = Use(host.to_owned());
    if !image.disk.is_open() {
        return Err(misuse(host, "was opened before a fork; open it after the fork"));
    }
    let (given, meant) = &image.options;
    if options.is_some_and(|options| !OpenOptions::parse(options).is_ok_and(|new| new == *meant)) {
        let given = if given.is_empty() { "the defaults" } else { given };
        let text = format!("is open with other options (`{given}`); give the same or none");
        return Err(misuse(host, &text));
    }
    let flags = if image.disk.is_read_only() { read_only(flags) } else { flags };
    let opened = image.files.open(Some(path), flags);
    drop(image);
    let (mut file, flags) = opened.map_err(|code| {
        (code, format!("{host}: {path} cannot be opened; check that its directory exists"))
    })?;
    file.hold(Box::new(used) as Box<dyn Any + Send>);
    Ok((file, flags))
}

/// Does `what` with the files of an image that is open, in this process; `None` if it is not.
pub(crate) fn with<T>(host: &str, what: impl FnOnce(&State) -> T) -> Option<T> {
    let image = IMAGES.lock().get(host).map(|entry| Arc::clone(&entry.image))?;
    if !image.disk.is_open() {
        return None;
    }
    Some(what(&image.files))
}

fn open_image(host: &str, options: &str) -> Result<Image, Error> {
    let parsed = OpenOptions::parse(options).map_err(|err| err.at("options="))?;
    if parsed.isolate.as_ref().is_some_and(|program| !program.as_os_str().is_empty()) {
        // Who may attach a database may not run a program.
        let text = "isolate: a URI names no program; give 1, and set SYNCLINE_PROGRAM if need be";
        return Err(Error::invalid(text));
    }
    let disk = Disk::open(Path::new(host), &parsed)?;
    let fs: Arc<dyn Store> = if parsed.isolate.is_some() {
        Arc::new(DiskFs::new(disk.clone()))
    } else {
        let (volume, clock) = disk.volume()?;
        let fs = VolumeFs::new(volume, clock, 0);
        fs.offer_atomic(true);
        Arc::new(fs)
    };
    // Random numbers are the default VFS's: no seed is used.
    let files = State::new(fs, 0).refuse_after_fork(&FORKS);
    Ok(Image { disk, files, options: (options.to_owned(), parsed) })
}

/// Flags as the unix VFS gives them where it may not write.
fn read_only(flags: i32) -> i32 {
    let without = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE;
    (flags & !without) | ffi::SQLITE_OPEN_READONLY
}

fn misuse(host: &str, text: &str) -> Failed {
    (ffi::SQLITE_CANTOPEN, format!("{host} {text}"))
}

fn failed(err: Error) -> Failed {
    let code = match err.errno {
        EBUSY => ffi::SQLITE_BUSY,
        EIO => ffi::SQLITE_IOERR,
        _ => ffi::SQLITE_CANTOPEN,
    };
    (code, err.text)
}
