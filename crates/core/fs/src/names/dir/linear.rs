//! Directories without an index: every block is read in order.
//!
//! One-block directories of a `dir_index` volume are linear too; they become indexed when they
//! overflow. A lookup costs one pass over all blocks, as in Linux. Tested here and in
//! `tests/it/namespace*.rs`.

use syncline_ondisk::dir as disk;

use crate::error::Result;
use crate::names::dir::block::Scan;
use crate::names::dir::store::{BlockKind, DirRead, DirWrite};
use crate::names::dir::{Found, Probe};

/// Looks `name` up in all blocks and remembers the first one with room.
pub(crate) fn lookup<D: DirRead>(dir: &D, name: &[u8]) -> Result<Probe> {
    let mut place = None;
    for lblk in 0..dir.blocks() {
        let bytes = dir.block(lblk, BlockKind::Leaf)?;
        match dir.params().scan(&bytes, name).map_err(|err| dir.broken(lblk, err))? {
            Scan::Found { offset, ino, file_type } => {
                return Ok(Probe::Found(Found { lblk, offset, ino, file_type }));
            }
            Scan::Absent { room } if room && place.is_none() => place = Some(lblk),
            Scan::Absent { .. } => {}
        }
    }
    Ok(Probe::Absent(place))
}

/// Adds a block that holds `entry`.
pub(crate) fn append<D: DirWrite>(dir: &mut D, entry: (&[u8], u32, u8)) -> Result<()> {
    let format = dir.params().format;
    let mut block = vec![0; dir.block_size()];
    disk::init_empty(&mut block, &format);
    disk::insert(&mut block, &format, entry.0, entry.1, entry.2)?;
    dir.append(BlockKind::Leaf, &block)?;
    Ok(())
}
