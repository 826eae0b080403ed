//! The storage back end: each file of a torrent is a FlashLite log beside its final name.
//!
//! Promises
//! - Blocks are appended in the order in which they come, each as one record, whatever their place.
//! - What was downloaded before the process ended, in whatever way, is there when the torrent is
//!   added again: the client's own check of the pieces finds it. What [`FlashLiteFactory::sync`]
//!   covered, or was followed by 64 MiB of others, survives a power cut too.
//! - A file of the torrent never leaves the directory that was given.
//!
//! Afterwards [`syncline_flashlite::Log::rearrange_to`], or `syncline flashlite rearrange`, makes
//! the normal file. Limit of librqbit 9: its session persistence knows its own storage only, so a
//! restarted client checks all pieces, as it does without persistence.

use std::ffi::OsString;
use std::io::IoSlice;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Weak};

use anyhow::{Context, Result, bail};
use librqbit::storage::{BoxStorageFactory, StorageFactory, StorageFactoryExt, TorrentStorage};
use librqbit::{ManagedTorrentShared, TorrentMetadata};
use parking_lot::Mutex;
use syncline_flashlite::{Log, Options};

/// The log of a file: its name with `.flashlite` behind it.
#[must_use]
pub fn log_path(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".flashlite");
    name.into()
}

/// Makes storages in one directory. Give it to librqbit as `storage_factory`.
#[derive(Clone)]
pub struct FlashLiteFactory {
    dir: PathBuf,
    options: Options,
    open: Arc<Mutex<Vec<Weak<Log>>>>,
}

impl FlashLiteFactory {
    /// Logs in `dir`, made with `options`.
    #[must_use]
    pub fn new(dir: PathBuf, options: Options) -> FlashLiteFactory {
        FlashLiteFactory { dir, options, open: Arc::default() }
    }

    /// Makes durable what all storages of this factory and its clones have written.
    ///
    /// # Errors
    /// As [`Log::sync_data`].
    pub fn sync(&self) -> Result<()> {
        let logs: Vec<Arc<Log>> = self.open.lock().iter().filter_map(Weak::upgrade).collect();
        for log in logs {
            log.sync_data()?;
        }
        Ok(())
    }
}

impl StorageFactory for FlashLiteFactory {
    type Storage = FlashLiteStorage;

    fn create(&self, _: &ManagedTorrentShared, _: &TorrentMetadata) -> Result<FlashLiteStorage> {
        Ok(FlashLiteStorage { factory: self.clone(), logs: Mutex::default() })
    }

    fn clone_box(&self) -> BoxStorageFactory {
        self.clone().boxed()
    }
}

/// The logs of one torrent, by the numbers of its files; none for padding.
pub struct FlashLiteStorage {
    factory: FlashLiteFactory,
    logs: Mutex<Vec<Option<Arc<Log>>>>,
}

impl FlashLiteStorage {
    /// The lock is held for the look-up only, so that files are read and written side by side.
    fn log(&self, file: usize) -> Result<Arc<Log>> {
        let logs = self.logs.lock();
        let log = logs.get(file).and_then(Option::as_ref);
        log.cloned().context("no such file of the torrent is open; add the torrent again")
    }

    fn path(&self, name: &Path) -> Result<PathBuf> {
        let inside = name.components().all(|part| matches!(part, Component::Normal(_)));
        if !inside || name.as_os_str().is_empty() {
            bail!("{}: a name that leaves the directory; do not use this torrent", name.display());
        }
        Ok(self.factory.dir.join(name))
    }

    fn open(&self, name: &Path) -> Result<Arc<Log>> {
        let path = log_path(&self.path(name)?);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let options = self.factory.options;
        let log = if path.try_exists()? {
            Log::open_file(&path, options)
        } else {
            Log::create_file(&path, options)
        };
        let log = Arc::new(log.with_context(|| path.display().to_string())?);
        let mut open = self.factory.open.lock();
        open.retain(|known| known.strong_count() > 0);
        open.push(Arc::downgrade(&log));
        Ok(log)
    }
}

impl TorrentStorage for FlashLiteStorage {
    fn init(&mut self, _: &ManagedTorrentShared, metadata: &TorrentMetadata) -> Result<()> {
        let open = |info: &librqbit::file_info::FileInfo| {
            if info.attrs.padding { Ok(None) } else { self.open(&info.relative_filename).map(Some) }
        };
        let logs = metadata.file_infos.iter().map(open).collect::<Result<Vec<_>>>()?;
        *self.logs.lock() = logs;
        Ok(())
    }

    fn pread_exact(&self, file: usize, offset: u64, into: &mut [u8]) -> Result<()> {
        let read = self.log(file)?.read_at(into, offset)?;
        if read < into.len() {
            bail!("the file ends at byte {}; the piece is not there yet", offset + read as u64);
        }
        Ok(())
    }

    fn pwrite_all(&self, file: usize, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.log(file)?.write_at(data, offset)?)
    }

    fn pwrite_all_vectored(
        &self,
        file: usize,
        offset: u64,
        parts: [IoSlice<'_>; 2],
    ) -> Result<usize> {
        let [first, second] = parts;
        // One record, so one tag, for a block that lies across the end of the client's ring buffer.
        let both;
        let data = match (first.is_empty(), second.is_empty()) {
            (_, true) => &*first,
            (true, false) => &*second,
            (false, false) => {
                both = [&*first, &*second].concat();
                &both
            }
        };
        self.pwrite_all(file, offset, data)?;
        Ok(data.len())
    }

    fn remove_file(&self, file: usize, name: &Path) -> Result<()> {
        if let Some(log) = self.logs.lock().get_mut(file) {
            *log = None;
        }
        let path = log_path(&self.path(name)?);
        std::fs::remove_file(&path).with_context(|| path.display().to_string())
    }

    fn remove_directory_if_empty(&self, name: &Path) -> Result<()> {
        let path = self.path(name)?;
        match std::fs::remove_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(()),
            done => done.with_context(|| path.display().to_string()),
        }
    }

    fn ensure_file_length(&self, file: usize, length: u64) -> Result<()> {
        let log = self.log(file)?;
        if log.len() != length {
            log.set_len(length)?;
        }
        Ok(())
    }

    fn take(&self) -> Result<Box<dyn TorrentStorage>> {
        let logs = Mutex::new(std::mem::take(&mut *self.logs.lock()));
        Ok(Box::new(FlashLiteStorage { factory: self.factory.clone(), logs }))
    }
}
