//! Parts that several layers share and that know none of them.
//!
//! - [`crc32c`]`(data)`, [`crc32c_append`]`(crc, data)`: the checksum of journals, logs and
//!   metadata; `crc` is that of the bytes before `data`.
//! - [`lockrank`]: mutexes and read-write locks whose order is checked in debug builds.

#![forbid(unsafe_code)]

mod checksum;
pub mod lockrank;

pub use checksum::{crc32c, crc32c_append};
