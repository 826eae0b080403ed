//! Recovery of orphans at mount: inodes without links are deleted, the others cut to their size.

use std::sync::Arc;

use syncline_ondisk::orphan_file;

use crate::error::{FsError, Result};
use crate::incore::OrphanPlace;
use crate::inode::Inodes;
use crate::inode::evict::truncate_orphan;
use crate::inode::iget::iget_unlinked;
use crate::inode::reference::InodeRef;
use crate::inode::table::inode_csum_seed;

/// Finishes orphans: deletes those without links, truncates the others to their size. Called once
/// at mount.
///
/// # Errors
/// [`FsError::Corrupt`] for a list with a cycle or impossible numbers.
pub(crate) fn process_orphans(inodes: &Arc<Inodes>) -> Result<u32> {
    let held = hold_orphans(inodes)?;
    let count = held.len() as u32;
    for inode in &held {
        let (links, size) = {
            let st = inode.state.read();
            (st.raw.i_links_count, st.raw.i_size)
        };
        if links > 0 {
            inodes.relieve_log()?;
            truncate_orphan(inodes, inode.arc(), size)?;
        }
    }
    // Those without links are deleted here, when their last references go.
    drop(held);
    inodes.latch.check()?;
    Ok(count)
}

/// References to all orphans, which are known as such from now on. One that is dropped is deleted
/// if it has no links.
///
/// # Errors
/// As [`process_orphans`].
pub(crate) fn hold_orphans(inodes: &Arc<Inodes>) -> Result<Vec<InodeRef>> {
    let mut found = read_orphan_file(inodes)?;
    // The references are kept: dropping one deletes its inode, which must be known as a member
    // of the list by then.
    let (list, members) = read_orphan_list(inodes)?;
    found.extend(list.iter().map(|ino| (*ino, OrphanPlace::List)));
    inodes.orphans.lock().set_list(list);
    let mut held = Vec::with_capacity(found.len());
    for (ino, place) in found {
        let inode = iget_unlinked(inodes, ino)?;
        inode.state.write().orphan = Some(place);
        held.push(inode);
    }
    drop(members);
    Ok(held)
}

fn read_orphan_list(inodes: &Arc<Inodes>) -> Result<(Vec<u32>, Vec<InodeRef>)> {
    let mut list: Vec<u32> = Vec::new();
    let mut members = Vec::new();
    let mut ino = inodes.sb.lock().s_last_orphan;
    while ino != 0 {
        let valid = ino >= inodes.geo.first_ino && ino <= inodes.geo.inodes_count;
        if !valid || list.len() as u64 > u64::from(inodes.geo.inodes_count) || list.contains(&ino) {
            return Err(inodes.corrupt(Some(ino), None, None, "broken orphan list"));
        }
        list.push(ino);
        let member = iget_unlinked(inodes, ino)?;
        ino = member.state.read().raw.i_dtime;
        members.push(member);
    }
    Ok((list, members))
}

fn read_orphan_file(inodes: &Inodes) -> Result<Vec<(u32, OrphanPlace)>> {
    let (blocks, seed) = {
        let orphans = inodes.orphans.lock();
        let seed = inode_csum_seed(inodes, orphans.file_ino, orphans.file_generation);
        (orphans.file.clone(), seed)
    };
    let mut found = Vec::new();
    for (index, block) in blocks.into_iter().enumerate() {
        let bytes = inodes
            .buffers
            .get(block, |bytes| {
                orphan_file::verify(bytes, block, seed)
                    .map_err(|err| FsError::from(err.in_block(block)))
            })
            .map_err(|err| inodes.found_corrupt(err))?;
        for (entry, ino) in orphan_file::orphans(&bytes) {
            if ino < inodes.geo.first_ino || ino > inodes.geo.inodes_count {
                let what = "orphan file names an impossible inode";
                return Err(inodes.corrupt(Some(ino), Some(block), None, what));
            }
            found.push((ino, OrphanPlace::File(index, entry)));
        }
    }
    Ok(found)
}
