//! The C interfaces, as one library: the headers in `include` document every function.
//!
//! ```text
//!   syncline.h            number ──> table ──> Disk, File, Directory, Builder (syncline)
//!   flashlite.h           flashlite.rs, feature `flashlite`
//!   syncline_recorder.h   recorder.rs, feature `recorder`
//! ```
//!
//! The first is described here, the other two in their files.
//!
//! Promises: no handle is a pointer, so a stale one is EBADF; pointers that are null where
//! something is needed are EINVAL; a panic, which would be a bug of ours, becomes EIO and does not
//! cross into C. Other pointers must be what the header asks for. A process that was forked has a
//! table of its own, so that no lock of the other one is waited for. Tested by C programs in
//! `tests/it`, under AddressSanitizer and, where it is installed, valgrind.

mod build;
mod callbacks;
mod dirs;
mod files;
#[cfg(feature = "flashlite")]
mod flashlite;
mod names;
mod pointers;
#[cfg(feature = "recorder")]
mod recorder;
mod table;
mod tools;
mod volumes;

pub use build::*;
pub use dirs::*;
pub use files::*;
pub use names::*;
pub use tools::*;
pub use volumes::*;
