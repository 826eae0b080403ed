//! Atomic writes through f2fs's ioctls, as SQLite's unix VFS uses them.
//!
//! ```text
//!   GET_FEATURES       -> has atomic writes
//!   START              the handle's writes are staged from here on, its reads see them
//!   write(2) ...       through the kernel's cache to us, staged beside the volume's cache
//!   COMMIT             all of it durable as one      ABORT, close, exit: none of it
//! ```
//!
//! Promises: those of [`syncline_fs::Volume::begin_atomic`] for what is on the device and in the
//! volume's cache. After an abort the kernel's copy of the contents is dropped.
//!
//! Differences from f2fs: who may write may start (f2fs asks for the owner); a second handle gets
//! EBUSY (f2fs lets it join). Limits: the kernel's cache of a file belongs to all who have it open,
//! so on this machine other programs can read staged bytes from there before the commit. Refused
//! with `writeback_cache`, where writes arrive when the kernel likes, and for O_DIRECT, as in f2fs.
//! Pages of shared mappings are written as ever.
//!
//! Sources: fs/f2fs/file.c, include/uapi/linux/f2fs.h; `sqlite3.c`, `unixFileControl`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use syncline_base::lockrank::Mutex;
use syncline_fs::{AtomicWrite, FsError, Result};

use super::Serve;
use crate::handle::Handle;
use crate::ranks;

/// `F2FS_FEATURE_ATOMIC_WRITE`.
const FEATURE_ATOMIC_WRITE: u32 = 0x0004;

/// Atomic writes that have begun, by open file.
pub(crate) struct Atomics {
    /// So that reads and writes of other files need no lock.
    count: AtomicUsize,
    by_handle: Mutex<HashMap<Handle, AtomicWrite>>,
}

impl Default for Atomics {
    fn default() -> Atomics {
        let by_handle = Mutex::new(ranks::ATOMICS, HashMap::new());
        Atomics { count: AtomicUsize::new(0), by_handle }
    }
}

impl Atomics {
    fn take(&self, handle: Handle) -> Option<AtomicWrite> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let taken = self.by_handle.lock().remove(&handle);
        self.count.fetch_sub(usize::from(taken.is_some()), Ordering::AcqRel);
        taken
    }

    /// Does `work` on the atomic write of a handle, if it has one.
    pub(crate) fn with<R>(
        &self,
        handle: Handle,
        work: impl FnOnce(&mut AtomicWrite) -> R,
    ) -> Option<R> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.by_handle.lock().get_mut(&handle).map(work)
    }

    /// Aborts all, for the unmount.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.by_handle.lock());
        self.count.store(0, Ordering::Release);
        drop(all);
    }
}

/// Features of the mount, as f2fs tells them.
pub(crate) fn features(serve: &Serve) -> Vec<u8> {
    let features = if serve.eager && !serve.writeback_cache { FEATURE_ATOMIC_WRITE } else { 0 };
    features.to_ne_bytes().to_vec()
}

/// Begins an atomic write of the handle; nothing, if it has begun one already.
pub(crate) fn start(serve: &Serve, ino: u32, handle: Handle) -> Result<()> {
    if serve.writeback_cache {
        let text = "atomic writes with writeback_cache, which delays what is written";
        return Err(FsError::NotSupported(text.to_owned()));
    }
    if !handle.may_write() {
        return Err(FsError::invalid("an atomic write through a handle that reads"));
    }
    if serve.atomics.with(handle, |_| ()).is_some() {
        return Ok(());
    }
    let atomic = serve.vol.begin_atomic(&serve.inode(ino)?)?;
    serve.atomics.by_handle.lock().insert(handle, atomic);
    serve.atomics.count.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

/// Makes what the handle has staged durable as one.
pub(crate) fn commit(serve: &Serve, handle: Handle) -> Result<()> {
    let Some(atomic) = serve.atomics.take(handle) else {
        return Err(FsError::invalid("a commit without an atomic write"));
    };
    let ino = atomic.inode().ino;
    let from = serve.clock.now_ns();
    serve.vol.commit_atomic(atomic)?;
    serve.status.traffic.synced(ino);
    serve.status.synced(serve.clock.now_ns().saturating_sub(from));
    Ok(())
}

/// Drops what the handle has staged. True if it had begun an atomic write: the kernel's copy of the
/// contents is wrong then.
pub(crate) fn abort(serve: &Serve, handle: Handle) -> bool {
    serve.atomics.take(handle).is_some()
}
