//! A tree as a tar archive for the host, which takes large parts of files by their place.

use std::io::Write;

use syncline_fs::{InodeRef, Volume};
use syncline_image::{ImageError, archive};

use crate::host::Host;
use crate::session::CHUNK_BYTES;

/// An archive for the host.
pub(crate) struct Archive<'a> {
    pub(crate) host: &'a dyn Host,
    pub(crate) vol: &'a Volume,
    /// Small pieces wait to be one.
    pub(crate) bytes: Vec<u8>,
}

impl Write for Archive<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let taken = self.bytes.is_empty() || self.host.emit(&self.bytes);
        self.bytes.clear();
        match taken {
            true => Ok(()),
            // Who takes it has enough.
            false => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl archive::Sink for Archive<'_> {
    fn take(&mut self, path: &[u8], start: u64, len: u64) -> syncline_image::Result<bool> {
        let (mut at, end) = (start, start.saturating_add(len));
        if len < CHUNK_BYTES as u64 {
            return Ok(false);
        }
        let Ok(inode) = self.vol.resolve_nofollow(path) else { return Ok(false) };
        // What is not found so is read, which says why it cannot be.
        let Ok(extents) = self.vol.fiemap(&inode, start, len) else { return Ok(false) };
        let mut parts = Vec::new();
        for extent in extents {
            let skip = at.checked_sub(extent.logical).filter(|skip| *skip < extent.len);
            let is_stored = !extent.inline && !extent.delalloc && !extent.unwritten;
            let Some(skip) = skip.filter(|_| is_stored && at < end) else { return Ok(false) };
            let len = (extent.len - skip).min(end - at);
            parts.push((at, extent.physical + skip, len));
            at += len;
        }
        if at != end {
            return Ok(false);
        }
        self.flush().map_err(|_| ImageError::Stopped)?;
        let mut is_first = true;
        for (logical, at, len) in parts {
            match self.host.emit_part(at, len) {
                true => (),
                false if is_first => return Ok(false),
                false => {
                    self.read(&inode, logical, len)?;
                    self.flush().map_err(|_| ImageError::Stopped)?;
                }
            }
            is_first = false;
        }
        Ok(true)
    }
}

impl Archive<'_> {
    /// Emits bytes of a file that is stored.
    fn read(&mut self, inode: &InodeRef, mut at: u64, len: u64) -> syncline_image::Result<()> {
        let (mut bytes, end) = (vec![0; CHUNK_BYTES], at + len);
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let part = bytes.get_mut(..most).unwrap_or_default();
            let read = self.vol.read_unseen(inode, at, part)?;
            let part = part.get(..read).filter(|part| !part.is_empty());
            let part = part.ok_or_else(|| ImageError::Corrupt("a file ends early".into()))?;
            self.write_all(part).map_err(|_| ImageError::Stopped)?;
            at += read as u64;
        }
        Ok(())
    }
}
