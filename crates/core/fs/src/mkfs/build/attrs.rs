//! Extended attributes: equal ones are kept once, and share their block.

use std::collections::BTreeMap;

use syncline_ondisk::inode::{S_IFDIR, S_IFMT, S_IFREG};
use syncline_ondisk::xattr::{Place, REFCOUNT_MAX, XattrSet};

use crate::data::durability::check_durability;
use crate::data::relocate::ATTRIBUTE as RELOCATE;
use crate::error::{FsError, Result};
use crate::inode::xattr::acl::Acl;
use crate::inode::xattr::outside::VALUE_BYTES_MAX;
use crate::inode::xattr::{INDEX_ACL_DEFAULT, INDEX_USER, is_acl, split};

/// A full name and a value, as setxattr takes them.
pub type Xattr<'a> = (&'a [u8], &'a [u8]);

/// An attribute as it is stored: index, name, value.
type Stored = (u8, Vec<u8>, Vec<u8>);

/// The attributes that some inodes have.
#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    pub(super) inode: XattrSet,
    pub(super) block: XattrSet,
    /// Inodes that have them and have no block yet.
    pub(super) users: u32,
    /// The block in use, and how many more may use it.
    pub(super) at: (u64, u32),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Sets {
    known: BTreeMap<Vec<Stored>, u32>,
    pub(super) sets: Vec<Set>,
}

impl Sets {
    /// The number of the set with these attributes for an inode of this mode; 0 is none. The error
    /// has the place of the attribute.
    pub(super) fn add(
        &mut self,
        mode: u16,
        xattrs: &[Xattr<'_>],
        (room, block_size): (usize, usize),
    ) -> std::result::Result<u32, (usize, FsError)> {
        let (mut all, mut places) = (Vec::with_capacity(xattrs.len()), Vec::new());
        for (i, xattr) in xattrs.iter().enumerate() {
            if let Some(found) = stored(mode, *xattr).map_err(|err| (i, err))? {
                all.push(found);
                places.push(i);
            }
        }
        if all.is_empty() {
            return Ok(0);
        }
        if let Some(known) = self.known.get(&all) {
            return Ok(*known);
        }
        let mut set = Set::default();
        for ((index, name, value), i) in all.iter().zip(places) {
            let mut inode = set.inode.clone();
            inode.set(*index, name, value).map_err(|err| (i, err.into()))?;
            if inode.fits(Place::Inode, room) {
                set.inode = inode;
                set.block.remove(*index, name);
                continue;
            }
            set.inode.remove(*index, name);
            set.block.set(*index, name, value).map_err(|err| (i, err.into()))?;
            if !set.block.fits(Place::Block, block_size) {
                return Err((i, FsError::NoSpace));
            }
        }
        self.sets.push(set);
        let number = self.sets.len() as u32;
        self.known.insert(all, number);
        Ok(number)
    }
}

impl Set {
    /// The block for one more inode. `put` writes a block with so many users and says where.
    pub(super) fn block_of_next(
        &mut self,
        put: impl FnOnce(&Self, u32) -> Result<u64>,
    ) -> Result<u64> {
        if self.at.1 == 0 {
            let users = self.users.min(REFCOUNT_MAX);
            self.at = (put(self, users)?, users);
            self.users -= users;
        }
        self.at.1 -= 1;
        Ok(self.at.0)
    }
}

/// The form on disk; none if the mode or nothing says the same.
fn stored(mode: u16, (name, value): Xattr<'_>) -> Result<Option<Stored>> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(FsError::ArgumentTooBig);
    }
    let (index, rest) = split(name)?;
    check_durability(name, value)?;
    // A request to a mounted volume, and no attribute.
    if name == RELOCATE {
        return Ok(None);
    }
    if index == INDEX_USER && !matches!(mode & S_IFMT, S_IFREG | S_IFDIR) {
        return Err(FsError::Perm);
    }
    if !is_acl(index) {
        return Ok(Some((index, rest.to_vec(), value.to_vec())));
    }
    let Some(mut acl) = Acl::from_xattr(value)? else { return Ok(None) };
    if index == INDEX_ACL_DEFAULT {
        if mode & S_IFMT != S_IFDIR {
            return Err(FsError::Perm);
        }
    } else if acl.mode().1 {
        return Ok(None);
    } else {
        acl.chmod(mode.into());
    }
    Ok(Some((index, rest.to_vec(), acl.to_disk())))
}
