//! Requests served by a volume.
//!
//! ```text
//!   names.rs        names: looked up, made, removed, renamed, listed     acl.rs   default ACLs
//!   attributes.rs   attributes, extended attributes, flags
//!   data.rs         open files, contents, syncs                          nodes.rs references
//!   atomic.rs       atomic writes                                    space.rs trim, shutdown
//!   privileges.rs   set-id bits, capabilities, immutable and append-only files
//! ```
//!
//! Duties that the kernel leaves to a file system, and ext4 has in the kernel, are done here. With
//! `uid=` or `gid=` every file shows that owner, and what is made belongs, on disk, to the owner of
//! its directory. Inode numbers are ext4's: the root is 2. Every function that returns the
//! attributes of a name counts one lookup of it, which [`Serve::forget`] takes back.
//!
//! Tested in `tests/it`, beside the kernel's ext4 in `tests/it/posix.rs`.

pub(crate) mod atomic;
pub(crate) mod attributes;
pub(crate) mod data;
pub(crate) mod names;
mod nodes;
mod privileges;
pub(crate) mod space;

pub use attributes::STATUS_XATTR;
pub(crate) use data::{OpenHow, WriteHow};
pub(crate) use names::Entry;

use std::sync::Arc;

use syncline_control::status::Status;
use syncline_device::Clock;
use syncline_fs::{Attr, InodeRef, Result, SyncMode, Volume};

use crate::caller::Caller;
use crate::handle::Handles;
use crate::host::{DEVICE_PATH, Host};
use crate::options::FuseOptions;
use crate::wakeup::Wakeup;
use nodes::Nodes;

/// The root directory.
const ROOT: u32 = 2;

/// A volume that answers the kernel.
pub(crate) struct Serve {
    vol: Volume,
    clock: Arc<dyn Clock>,
    nodes: Nodes,
    handles: Handles,
    owner: Option<u32>,
    group: Option<u32>,
    eager: bool,
    writeback_cache: bool,
    /// Users other than the one who mounted may use the mount.
    is_shared: bool,
    pub(crate) atomics: atomic::Atomics,
    status: Arc<Status>,
    /// Wakes the maintenance thread when too much is dirty.
    pub(crate) wakeup: Wakeup,
    pub(crate) host: Arc<dyn Host>,
}

impl Serve {
    /// Least difference of two times of files.
    pub(crate) fn time_granularity_ns(&self) -> u32 {
        self.vol.time_granularity_ns()
    }

    /// Requests come through io_uring, or not, for the status document.
    pub(crate) fn set_by_ring(&self, by_ring: bool) {
        self.status.set_transport(if by_ring { "io_uring" } else { DEVICE_PATH });
    }

    /// Counts a request for the status document.
    pub(crate) fn count(&self, opcode: u32) {
        self.status.kinds.add(opcode);
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.status.kinds.sum()
    }

    /// True as long as nothing can change.
    pub(crate) fn is_read_only(&self) -> bool {
        self.vol.is_read_only()
    }

    pub(crate) fn new(
        vol: Volume,
        clock: Arc<dyn Clock>,
        options: &FuseOptions,
        status: Arc<Status>,
        host: Arc<dyn Host>,
    ) -> Serve {
        let eager = options.volume.sync != SyncMode::Ordered;
        let (owner, group) = (options.uid, options.gid);
        let (nodes, handles, wakeup, atomics) = Default::default();
        let (writeback_cache, is_shared) = (options.writeback_cache, options.allow_other);
        Serve {
            vol,
            clock,
            nodes,
            handles,
            owner,
            group,
            eager,
            writeback_cache,
            is_shared,
            atomics,
            status,
            wakeup,
            host,
        }
    }

    /// True for the user who serves the mount, and for administrators.
    pub(crate) fn is_servers(&self, caller: Caller) -> bool {
        let is_owner = match self.host.owner() {
            Some(owner) => caller.uid == owner,
            // Nobody else gets to it.
            None => !self.is_shared,
        };
        is_owner || caller.is_administrator(&*self.host)
    }

    /// Drops every inode, for the unmount.
    pub(crate) fn clear(&self) {
        self.atomics.clear();
        self.nodes.clear();
    }

    /// Takes back `lookups` of an inode.
    pub(crate) fn forget(&self, ino: u32, lookups: u64) {
        self.nodes.forget(ino, lookups);
    }

    /// The inode that a request names: any number, from a kernel that may be wrong.
    fn inode(&self, ino: u32) -> Result<InodeRef> {
        self.vol.iget_handle(ino)
    }

    /// True if the kernel may remember names of a directory.
    pub(crate) fn names_stay(&self, dir: u32) -> bool {
        !self.vol.folds_case(dir)
    }

    /// True if the kernel may remember that a name is not there: no directory of the volume can
    /// begin to fold case, where another spelling of it may be made.
    pub(crate) fn absence_stays(&self) -> bool {
        !self.vol.can_fold_case()
    }

    /// Attributes with the owner of `uid=` and `gid=`.
    fn show(&self, mut attr: Attr) -> Attr {
        attr.uid = self.owner.unwrap_or(attr.uid);
        attr.gid = self.group.unwrap_or(attr.gid);
        attr
    }

    /// Attributes of a name that the kernel learns.
    fn learned(&self, inode: &InodeRef) -> Attr {
        self.nodes.looked_up(inode.ino);
        self.show(self.vol.getattr(inode))
    }
}
