//! Ordered sync: as the kernel's ext4 with `data=ordered`.
//!
//! ```text
//!   fsync(file):  write back its pages --> commit(sync_tid or datasync_tid) --> flush, unless the
//!                                                                        commit just did one
//! ```
//!
//! As `ext4_sync_file` does: the device is flushed even if nothing is dirty, because earlier
//! write-back may still be in its cache. fdatasync waits for [`crate::incore::Dirty::Data`] changes
//! only: an overwrite is one data write and one flush. For a directory and other inodes without
//! data both commit the running transaction, and flush nothing else.
//!
//! Tested in `tests/it/file_io_sync.rs`, with exact request counts.

use std::ops::Range;

use syncline_device::{Kind, Origin};
use syncline_jbd2::{Checksums, JournalOptions, Tid};
use syncline_ondisk::inode::{S_IFMT, S_IFREG};

use crate::data::Files;
use crate::data::engine::Engine;
use crate::data::flush::batch::Job;
use crate::data::flush::file::write_back;
use crate::data::flush::files::write_back_files;
use crate::data::relaxed::flush_relaxed;
use crate::data::schedule::timers::background_writeback;
use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::inode::lazytime::{write_lazy_times, write_lazy_times_of};
use crate::options::LogFormat;
use crate::store::Store;

/// `sync=ordered`.
pub(crate) struct Ordered;

impl Engine for Ordered {
    fn fsync(&self, files: &Files, inode: &Inode, range: Range<u64>, datasync: bool) -> Result<()> {
        let regular = inode.state.read().raw.i_mode & S_IFMT == S_IFREG;
        if regular {
            write_back(files, inode, range.start, range.end, true)?;
        }
        if !datasync || !regular {
            write_lazy_times_of(files, inode)?;
        }
        if !regular {
            // `ext4_force_commit`: the running transaction is committed, also with datasync. A
            // directory has no data outside of the journal, so without a commit there is nothing to
            // flush.
            files.journal()?.commit(files.journal()?.newest_tid())?;
            return files.latch.check();
        }
        let tid = {
            let st = inode.state.read();
            if datasync { st.datasync_tid } else { st.sync_tid }
        };
        commit_or_flush(files, tid, Kind::Data { inode: u64::from(inode.ino) })
    }

    fn sync_all(&self, files: &Files) -> Result<()> {
        write_back_files(files, true, |_, _| true)?;
        write_lazy_times(files)?;
        commit_or_flush(files, files.journal()?.newest_tid(), Kind::Other)?;
        flush_relaxed(files)
    }

    fn classify(&self, _files: &Files, _job: &mut Job<'_>) -> Result<()> {
        Ok(())
    }

    fn on_data_written(&self, _files: &Files, _job: &Job<'_>) -> Result<()> {
        Ok(())
    }

    fn background(&self, files: &Files, now_ns: u64) -> Result<()> {
        background_writeback(files, now_ns)
    }

    fn is_due_at_once(&self, _files: &Files) -> bool {
        false
    }

    fn gap_pages_max(&self) -> usize {
        0
    }

    fn sends_relaxed(&self) -> bool {
        true
    }

    fn journal_options(&self, _log: LogFormat, kernels: Checksums) -> JournalOptions {
        JournalOptions {
            checksums: kernels,
            checksums_at_rest: kernels,
            ..JournalOptions::default()
        }
    }
}

/// Waits until `tid` is on disk and everything written before this call is durable.
pub(crate) fn commit_or_flush(store: &Store, tid: Tid, kind: Kind) -> Result<()> {
    let journal = store.journal()?;
    if !journal.commit(tid)?.flushed {
        flush_device(store, kind)?;
    }
    // An abort between the two means that something acknowledged by the device was lost.
    store.latch.check()
}

fn flush_device(store: &Store, kind: Kind) -> Result<()> {
    if !store.dev.geometry().volatile_cache {
        return Ok(());
    }
    store.dev.flush(Origin::new(kind, true)).map_err(|err| store.fail(FsError::Io(err)))
}
