//! Tags that wait in memory, so that many are written at once ([`crate::Options::tags_at_once`]).
//!
//! Only tags of data that stand apart from them wait, and only in their group: they go to its head
//! in one piece, right before the place of the next tag. What ends the group or the segment, and
//! what is written into the head at once, writes them first or in the same call. So the storage
//! always has the tags of a first part of the records, as after a power cut. Tested in
//! `tests/it/tags.rs`, and by power cuts in `tests/it/crash.rs`.

use std::io::IoSlice;

use crate::format::TAG_BYTES;
use crate::tail::Tail;
use crate::{Log, Result, Storage};

impl Tail {
    /// Writes a tag, with its data if those stand behind it, and the tags that wait; or has it
    /// wait, if there would be fewer than `at_once`.
    ///
    /// # Errors
    /// As [`Tail::data`]; then the others wait as before.
    pub(crate) fn put_tag(
        &mut self,
        storage: &dyn Storage,
        tag: &[u8],
        at_once: u32,
    ) -> Result<()> {
        let before = self.waiting.len();
        let at = self.position - before as u64;
        self.waiting.extend_from_slice(tag);
        if (self.waiting.len() as u64) < u64::from(at_once) * TAG_BYTES {
            return Ok(());
        }
        let mut tags = std::mem::take(&mut self.waiting);
        let done = self.write(storage, &[IoSlice::new(&tags)], at);
        tags.truncate(if done.is_ok() { 0 } else { before });
        self.waiting = tags;
        done
    }

    /// Writes the tags that wait.
    ///
    /// # Errors
    /// As [`Tail::data`].
    pub(crate) fn write_waiting(&mut self, storage: &dyn Storage) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.put_tag(storage, &[], 0)
    }
}

impl Log {
    /// Gives tags that wait in memory ([`Options::tags_at_once`](crate::Options::tags_at_once)) to
    /// the storage: afterwards the end of the process loses nothing. It makes nothing durable.
    ///
    /// # Errors
    /// `Full`, `Io`, `Latched`.
    pub fn flush(&self) -> Result<()> {
        self.tail.lock().write_waiting(&*self.storage)
    }

    /// Changes [`Options::tags_at_once`](crate::Options::tags_at_once). Tags that wait are written.
    ///
    /// # Errors
    /// As [`Log::flush`].
    pub fn set_tags_at_once(&self, tags: u32) -> Result<()> {
        let mut tail = self.tail.lock();
        tail.tags_at_once = tags;
        tail.write_waiting(&*self.storage)
    }
}

/// Tags that wait are written; [`Log::close`] says whether that succeeded.
impl Drop for Log {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}
