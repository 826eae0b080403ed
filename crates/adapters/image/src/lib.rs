//! Image tools as a library: files of an ext4 image by path, without mounting it.
//!
//! ```text
//!   Place ("IMAGE:/path") -> Image (a volume, opened for reading or writing)
//!                              -> names   make, rename, remove
//!                              -> copy    trees between volumes and this system
//!                              -> archive tar archives in and out
//!   oci: container images -> build: a new image, laid out in one pass; behind: its writes
//!   files: all files of an image, open
//!   partition: the part of a whole-disk image; qcow2, container: the disk in such a file
//!   disk_of, unpack: a disk whose bytes a program reads, without files of this system
//!   stream: compressed bytes; stoppable: pipes; mkfs: a new image; text: names and tables to print
//! ```
//!
//! Promises
//! - Reading never writes to the image. An image whose journal has to be replayed is mounted on an
//!   overlay in memory.
//! - Names, depth and links of an image are not trusted: nothing outside of the target is touched.
//! - [`Watch`] is asked between pieces of work whether to stop, and gets remarks on files that
//!   were left out.
//!
//! The commands `ls`, `cat`, `cp`, `mkdir`, `mv`, `rm` and `stat` print what this crate does.
//! Tested in `tests/it`, and through the binary in `cli/tests`.

#![forbid(unsafe_code)]

pub mod archive;
#[cfg(any(unix, windows))]
mod behind;
#[cfg(any(unix, windows))]
pub mod build;
#[cfg(any(unix, windows))]
mod clean_stop;
mod container;
pub mod copy;
mod error;
#[cfg(any(unix, windows))]
mod files;
mod image;
#[cfg(any(unix, windows))]
pub mod mkfs;
pub mod names;
#[cfg(any(unix, windows))]
pub mod oci;
#[cfg(any(unix, windows))]
mod open;
pub mod partition;
#[cfg_attr(not(feature = "qcow2"), allow(dead_code, reason = "qcow2 is the only user of parts"))]
mod platform;
pub mod qcow2;
#[cfg(any(unix, windows))]
pub mod resize;
#[cfg(any(unix, windows))]
mod staged;
#[cfg(any(unix, windows))]
pub mod stoppable;
pub mod stream;
pub mod text;

pub use container::{disk_of, named, unpack};
pub use error::{ImageError, Result, plain, sentence};
#[cfg(any(unix, windows))]
pub use files::{Files, formatted, grows, is_packed};
pub use image::{Image, superblock};
#[cfg(any(unix, windows))]
pub use open::{
    Opening, Place, device, is_compressed, is_over, is_qcow2, opened_device, other_files,
};
pub use platform::{ReadAt, user};
#[cfg(any(unix, windows))]
pub use staged::{Staged, check_outputs, write_file};

/// Progress, remarks and cancellation of work on an image.
pub trait Watch {
    /// The function that says whether to stop, for reads that wait ([`stoppable`]).
    fn stop_check(&self) -> fn() -> bool {
        || false
    }

    /// Returns whether to stop; the work ends with [`ImageError::Stopped`].
    fn stopped(&self) -> bool {
        self.stop_check()()
    }

    /// Takes a remark: what could not be kept, what was left out.
    fn remark(&self, text: &str) {
        let _ = text;
    }

    /// Returns whether somebody looks at the progress, so that it is worth counting beforehand.
    fn wants_total(&self) -> bool {
        false
    }

    /// Takes the bytes that are to be copied in all.
    fn total(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Takes the bytes that were copied since the last call.
    fn copied(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Fails if the work is to stop.
    ///
    /// # Errors
    /// [`ImageError::Stopped`].
    fn check(&self) -> Result<()> {
        if self.stopped() { Err(ImageError::Stopped) } else { Ok(()) }
    }
}

/// Watches nothing.
impl Watch for () {}
