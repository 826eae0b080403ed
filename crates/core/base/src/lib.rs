//! Parts that several layers share and that know none of them.
//!
//! - [`crc32c`], [`crc32c_append`]: the checksum of journals, logs and metadata.
//! - [`lockrank`]: mutexes and read-write locks whose order is checked in debug builds.

#![forbid(unsafe_code)]

mod checksum;
pub mod lockrank;

pub use checksum::{crc32c, crc32c_append};
