//! Trees in and out of tar archives, with owners, attributes, hard links, devices and holes.
//!
//! Headers are those of the crate tar. Its reader is not used: it splits extended headers at line
//! ends, so that attributes with such a byte (capabilities, ACLs) are lost. `pax` reads and writes
//! these, `attributes` and `acl` what is in them, `fields` the numbers and `sparse` the maps of
//! headers, `reader` the members; `input` makes them files of a volume, `output` the other way
//! round.
//!
//! | of a file | in the archive |
//! |---|---|
//! | attributes | PAX `SCHILY.xattr.NAME`, as GNU tar, bsdtar and star; others are read |
//! | ACLs | PAX `SCHILY.acl.access` and `.default`, with numbers |
//! | holes | written as PAX sparse 1.0, read also as 0.0, 0.1 and GNU's old format |
//! | nanoseconds, long names, large numbers | PAX `mtime`, `path`, `linkpath`, `uid`, `gid`, size |
//!
//! Promises: members with `..` are refused, absolute names lose their slash; only the volume is
//! written to; no header makes this allocate more than [`EXTENDED_BYTES_MAX`]; the archive is read
//! to its end, so that what compressed it is verified. Tested in `cli/tests/it/transfer.rs` and
//! `cli/tests/it/archives.rs`, with GNU tar and bsdtar on the other side.

mod acl;
mod attributes;
mod fields;
pub(crate) mod input;
mod output;
mod pax;
pub(crate) mod reader;
mod rules;
mod sparse;
mod volumes;

pub use input::import;
#[cfg(any(unix, windows))]
pub use input::import_new;
pub use output::{Sink, export, export_to};
pub use rules::{IdMap, Rules};

/// Longest extended header, name or sparse map.
const EXTENDED_BYTES_MAX: u64 = 8 << 20;
/// Bytes of a block of an archive.
const BLOCK_BYTES: usize = 512;
