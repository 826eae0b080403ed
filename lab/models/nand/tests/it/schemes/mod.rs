//! Mapping schemes beyond page mapping: exact counts, plain models, invariants.

mod exact;
mod maps;
mod naive;
mod published;
mod slc;
mod wear;
mod zoned;

use syncline_nand::{Profile, Simulator};

/// One die, pages of 4 KiB, eight of them a superblock, nothing volatile.
pub const SMALL: &str = "generic-emmc:channels=1,dies_per_channel=1,planes=1,page_kib=4,\
                         pages_per_block=8,buffer_kib=0,queue_depth=1";

/// A device of the profile with overrides.
pub fn simulator(spec: &str, size_bytes: u64) -> Simulator {
    Simulator::new(&Profile::parse_built_in(spec).unwrap(), size_bytes).unwrap()
}
