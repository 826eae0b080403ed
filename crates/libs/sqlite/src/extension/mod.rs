//! A loadable extension of SQLite: databases inside of ext4 images, in any program's own SQLite.
//!
//! ```text
//!   sqlite3, python3 ── sqlite3_vfs `syncline` (ffi.rs) ── names.rs: image and path from a URI
//!                                |                    └── registry.rs: images open in this process
//!                                |                             |
//!                           state.rs: files            syncline: Disk
//! ```
//!
//! Promises
//! - The functions of SQLite come from the program that loads the library ([`api`]); nothing of the
//!   bundled SQLite is linked into it, only its types. `tests/it/extension.rs` looks.
//! - An image is opened with the first database in it, shared by all connections of the process,
//!   and unmounted with the last. Another process finds it busy (`SQLITE_BUSY`).
//! - xSync is the volume's fsync. Atomic writes are offered where the volume has them, and not with
//!   `isolate`, where the volume is in a helper process (`disk_fs.rs`).
//! - Temporary files are the default VFS's, as are time, sleep, random numbers and other libraries.
//! - The reason of a failed open goes to SQLite's error log, and `syncline_error()` returns it.
//!
//! Journal modes are those of the crate. The library stays loaded until the process ends, and
//! serves one SQLite of the process. Tested with the stock shell, Python and Node in
//! `tests/it/extension.rs`, and with SQLite's own tests by `cargo xtask run sqlite-suite`.

mod api;
mod disk_fs;
mod ffi;
mod names;
mod registry;
