//! Layers: where their bytes are, and what these must be.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::digest::{Checked, Digest};
use super::store::Section;
use crate::stream::{self, Ahead};
use crate::{ImageError, Result};

/// The layers of an image, the lowest first.
pub struct Layers(pub(super) Vec<Layer>);

/// A layer.
pub(super) struct Layer {
    section: Section,
    /// Its name in messages.
    pub(super) shown: String,
    /// Digest of its bytes as they are stored.
    digest: Option<Digest>,
    /// Digest of its uncompressed bytes.
    diff_id: Option<Digest>,
}

impl Layers {
    /// Layers in files of their own, the lowest first.
    ///
    /// # Errors
    /// As of open(2); a pipe, since a layer may have to be read twice.
    pub fn of_files(paths: &[PathBuf]) -> Result<Layers> {
        let layer = |path: &PathBuf| {
            let section = Section::whole(path).map_err(|err| ImageError::host(path, &err))?;
            Ok(Layer::new(section, path.display().to_string(), None, None))
        };
        Ok(Layers(paths.iter().map(layer).collect::<Result<_>>()?))
    }
}

impl Layer {
    pub(super) fn new(
        section: Section,
        shown: String,
        digest: Option<Digest>,
        diff_id: Option<Digest>,
    ) -> Layer {
        Layer { section, shown, digest, diff_id }
    }

    /// The uncompressed bytes, which a thread reads ahead. They fail at their end if they are
    /// not those of the image.
    pub(super) fn open(&self) -> Result<Ahead> {
        let mut stored = None;
        let raw: stream::Bytes = match &self.digest {
            Some(digest) => {
                let checked = Checked::new(self.section.clone(), digest.clone(), "its");
                stored = Some(checked.verified());
                Box::new(checked)
            }
            None => Box::new(self.section.clone()),
        };
        let (bytes, is_compressed) = stream::decoded(raw, self.shown.as_ref())?;
        // Bytes that are stored as they are need no second look.
        let unchecked =
            self.diff_id.as_ref().filter(|id| is_compressed || self.digest.as_ref() != Some(*id));
        let bytes: stream::Bytes = match unchecked {
            Some(id) => Box::new(Checked::new(bytes, id.clone(), "its uncompressed")),
            None => bytes,
        };
        Ok(Ahead::new(Box::new(Whole { bytes, stored })))
    }
}

/// Bytes that end only where the stored ones have ended and are right.
struct Whole {
    bytes: stream::Bytes,
    stored: Option<Arc<AtomicBool>>,
}

impl Read for Whole {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(into)?;
        let ended = read == 0 && !into.is_empty();
        if ended && self.stored.as_ref().is_some_and(|stored| !stored.load(Ordering::Relaxed)) {
            let text = "bytes after the end of the compressed data";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(read)
    }
}
