//! A SQLite VFS over a volume: databases inside of an ext4 image, no mount, no FUSE.
//!
//! ```text
//!   rusqlite ── sqlite3_vfs / sqlite3_io_methods (ffi.rs: all unsafe code)
//!                   |
//!                state.rs: open, delete, access      file.rs: read, write, sync, lock
//!                   |                                batch.rs: batch-atomic writes, until commit
//!                   |                                barriers.rs: syncs that need order only
//!                   |                                shm.rs: memory of connections in WAL mode
//!                   |
//!                store.rs: VolumeFs ── Volume, or the files of a helper process
//! ```
//!
//! Promises
//! - Every journal mode: DELETE, TRUNCATE, PERSIST, MEMORY, WAL. The memory that connections in WAL
//!   mode share is this process's, without a `-shm` file.
//! - The device characteristics are those of the unix VFS on Linux: `POWERSAFE_OVERWRITE`, and
//!   `BATCH_ATOMIC` where it is asked for ([`VolumeFs::offer_atomic`]) and the volume has atomic
//!   writes. Claiming atomic or sequential writes would save syncs that a real file system needs.
//! - Time comes from the volume's clock and randomness from a seed: with a virtual clock a run
//!   repeats exactly.
//! - Locks hold among the connections of this process; a volume has one process.
//!
//! A registration may be dropped while connections are open: they stay usable, new ones are
//! refused. Each registration leaves some 300 bytes behind, since SQLite may keep its pointer.
//!
//! The shared library of this crate is a loadable extension (`extension/mod.rs`), which registers
//! the same files with the SQLite that loads it. `state.rs`, `file.rs` and `ffi::place` are for
//! both: they call no function of SQLite.
//!
//! Tested in `tests/it/vfs.rs` (every journal mode, remount, power cuts with hot journals) and
//! `tests/it/extension.rs`.

#![deny(unsafe_code)]
#![cfg_attr(target_family = "wasm", allow(dead_code, reason = "parts that the extension calls"))]

mod barriers;
mod batch;
mod error;
#[cfg(not(target_family = "wasm"))]
mod extension;
mod ffi;
mod file;
#[cfg(target_family = "wasm")]
mod host;
mod locks;
mod shm;
mod state;
mod store;
mod vfs;
mod volume_fs;

pub use barriers::Barriers;
pub use error::{Result, VfsError};
pub use ffi::{allow_host_atomic, offers_atomic, seed_sqlite};
pub use vfs::SqliteVfs;
pub use volume_fs::{AppBytes, Background, VolumeFs};
