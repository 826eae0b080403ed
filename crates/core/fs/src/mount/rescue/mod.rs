//! A damaged volume for readers: in memory, the device below is only read.
//!
//! ```text
//!   device ── padded to its size ── overlay ── volume without checksums and indexes
//!                                      ^
//!     superblock or a backup, descriptors or backups, log, `/.rescue` (made.rs)
//! ```
//!
//! Promises
//! - The device gets no write. The view is a file system that a read-only mount takes.
//! - A superblock, a descriptor and the journal's inode are replaced only if they are bad: by a
//!   backup whose checksum is right, else by what their place says.
//! - A log is replayed; what is corrupt in it is left out, and that is noted.
//! - Other damage costs only the files that it hits: their reads fail, or their names are missing.
//!   Each such place is noted once ([`crate::Volume::take_missing`]).
//! - With [`Rescue::All`], or without a root directory, `made.rs` adds a directory with what has no
//!   name.
//!
//! Memory: that of the overlay, which has the superblock, descriptors that changed, what the log
//! replays, and `/.rescue`. With [`Rescue::All`] two bits an inode, one bit a
//! block, and 24 bytes a block of the log.
//! Assumption: block size and places of the file system are those of its superblock or of mke2fs's
//! default. Tested in `tests/it/rescue.rs`.

mod deleted;
mod descriptors;
mod made;
mod pieces;

use std::sync::Arc;

use syncline_device::{
    BlockDevice, Clock, DeviceError, Geometry as Shape, Kind, Op, Origin, OverlayDevice, Request,
};
use syncline_jbd2::{Journal, RecoverOptions};
use syncline_ondisk::bytes::put_le32;
use syncline_ondisk::inode::{GOOD_OLD_INODE_SIZE, Inode, S_IFREG};
use syncline_ondisk::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use syncline_ondisk::{
    CompatFeatures, Geometry, IncompatFeatures, RoCompatFeatures, inode as disk, packed,
};

use super::{OptionParts, build, log_map, open_store};
use crate::error::{FsError, Result};
use crate::inode::table::inode_place;
use crate::names::Names;
use crate::options::{MountOptions, Rescue};
use crate::store::Store;

const ORIGIN: Origin = Origin::new(Kind::Metadata, true);
/// How many times larger than its device a file system may be.
const CUT_FACTOR_MAX: u64 = 16;
/// Type of the copy of the journal's inode in the superblock.
const COPY_OF_I_BLOCK: u8 = 1;

/// A device of the size that the file system has, if it was cut.
struct Padded {
    below: Arc<dyn BlockDevice>,
    size_bytes: u64,
}

impl BlockDevice for Padded {
    fn geometry(&self) -> Shape {
        Shape { size_bytes: self.size_bytes, ..self.below.geometry() }
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> std::result::Result<(), DeviceError> {
        let has = self.below.geometry().size_bytes;
        for request in batch {
            let at = request.offset_bytes;
            let len: usize = match &request.op {
                Op::Read { into } => into.iter().map(|part| part.len()).sum(),
                _ => return Err(DeviceError::ReadOnly),
            };
            if at.saturating_add(len as u64) > has {
                return Err(DeviceError::Io {
                    op: "read",
                    offset_bytes: at,
                    len_bytes: len as u64,
                    reason: "the image ends before it".into(),
                    errno: 5,
                });
            }
            self.below.submit(std::slice::from_mut(request))?;
        }
        Ok(())
    }
}

/// A file system on its way into memory.
struct View {
    dev: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    options: MountOptions,
    /// As on the device, with the checksums that it has there.
    sb: Superblock,
    geo: Geometry,
    missing: Vec<String>,
}

/// Mounts what can be read of the volume on `dev`.
///
/// # Errors
/// No superblock, features that cannot be read, I/O of the superblock.
pub(super) fn mount(
    dev: Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    options: &MountOptions,
) -> Result<Arc<Names>> {
    let mut missing = Vec::new();
    let (mut sb, is_backup) = superblock(&*dev, &mut missing)?;
    // No backup says whether the log is needed; an empty one is no harm.
    sb.set_needs_recovery(sb.has_journal() && (is_backup || sb.needs_recovery()));
    let geo = Geometry::new(&sb, u64::MAX)?;
    let size_bytes = geo.blocks_count << geo.block_bits;
    let has = dev.geometry().size_bytes;
    let dev = if has < size_bytes {
        missing.push(format!("the last {} bytes of the file system", size_bytes - has));
        Arc::new(Padded { below: dev, size_bytes })
    } else {
        dev
    };
    let dev: Arc<dyn BlockDevice> = Arc::new(OverlayDevice::new(dev));
    let (clock, options) = (Arc::clone(clock), options.clone());
    let mut view = View { dev, clock, options, sb, geo, missing };
    view.put_superblock(true)?;
    view.mend_descriptors()?;
    let store = view.store()?;
    view.mend_journal_inode(&store)?;
    view.replay()?;
    let names = view.names();
    let names = match names {
        Ok(names) if view.options.rescue != Some(Rescue::All) => names,
        Err(err @ FsError::Unsupported(_)) => return Err(err),
        read => match (made::make(&mut view), read) {
            (Ok(()), _) => view.names()?,
            // Without a journal there is no room for the list, and no copy of an inode.
            (Err(err), Ok(names)) => {
                view.missing.push(format!("the list of what has no name: {err}"));
                names
            }
            (Err(_), Err(err)) => return Err(err),
        },
    };
    view.missing.into_iter().for_each(|what| names.note_missing(what));
    Ok(names)
}

/// The superblock, or the first backup of it, with its checksum right; else one
/// without. True for a backup.
fn superblock(dev: &dyn BlockDevice, missing: &mut Vec<String>) -> Result<(Superblock, bool)> {
    let mut places = vec![(SUPERBLOCK_OFFSET, None)];
    for group in [1u64, 3, 5, 7, 9, 25, 27, 49] {
        for bits in 10..=16 {
            let first = u64::from(bits == 10);
            places.push(((first + group * (8 << bits)) << bits, Some((group, bits))));
        }
    }
    let mut unsupported = None;
    for with_checksum in [true, false] {
        for (at, group) in &places {
            let mut bytes = [0; SUPERBLOCK_BYTES];
            if dev.read(*at, &mut bytes, ORIGIN).is_err() {
                continue;
            }
            let Ok(sb) = Superblock::decode(&bytes) else { continue };
            if with_checksum && sb.verify_checksum(&bytes).is_err() {
                continue;
            }
            let fits = group.is_none_or(|(group, bits)| {
                sb.s_log_block_size + 10 == bits
                    && u64::from(sb.s_blocks_per_group) == 8 << bits
                    && u32::try_from(group).is_ok_and(|group| sb.group_has_super(group))
            });
            let Ok(geo) = Geometry::new(&sb, u64::MAX) else { continue };
            // So that no number in it makes work without bound.
            let size = dev.geometry().size_bytes.saturating_mul(CUT_FACTOR_MAX);
            if !fits || geo.blocks_count > size >> geo.block_bits {
                continue;
            }
            if let Err(err) = sb.check_features() {
                unsupported.get_or_insert(err);
                continue;
            }
            match group {
                None if with_checksum => {}
                None => missing.push("the checksum of the superblock".into()),
                Some((group, _)) => {
                    missing.push(format!("the superblock; that of group {group} is used"));
                }
            }
            return Ok((sb, group.is_some()));
        }
    }
    match unsupported {
        Some(err) => Err(err.into()),
        None => Err(FsError::Corrupt {
            inode: None,
            block: None,
            offset: Some(SUPERBLOCK_OFFSET),
            what: "neither a superblock nor a backup of it was found".into(),
        }),
    }
}

impl View {
    /// Puts the superblock into the view, without what would stop a reader.
    fn put_superblock(&self, with_log: bool) -> Result<()> {
        let mut sb = self.sb.clone();
        sb.set_needs_recovery(with_log && sb.needs_recovery());
        let is_packed = with_log && packed::is_marked(&sb);
        packed::mark(&mut sb, is_packed);
        sb.s_feature_ro_compat.remove(RoCompatFeatures::METADATA_CSUM);
        sb.s_feature_ro_compat.remove(RoCompatFeatures::GDT_CSUM);
        sb.s_feature_incompat.remove(IncompatFeatures::CSUM_SEED);
        sb.s_feature_compat.remove(CompatFeatures::DIR_INDEX);
        sb.s_def_hash_version = 0;
        let mut bytes = [0; SUPERBLOCK_BYTES];
        if self.dev.read(SUPERBLOCK_OFFSET, &mut bytes, ORIGIN).is_err() {
            bytes.fill(0);
        }
        put_le32(&mut bytes, 0x38, u32::from(syncline_ondisk::superblock::EXT4_SUPER_MAGIC));
        sb.encode_into(&mut bytes)?;
        self.put(SUPERBLOCK_OFFSET, &bytes)
    }

    /// Writes into the view, in whole pieces of the overlay where those below cannot be read.
    fn put(&self, at: u64, bytes: &[u8]) -> Result<()> {
        if self.dev.write(at, bytes, ORIGIN).is_ok() {
            return Ok(());
        }
        let (start, end) = (at & !4095, (at + bytes.len() as u64).next_multiple_of(4096));
        let mut whole = vec![0; (end - start) as usize];
        let skip = (at - start) as usize;
        if let Some(place) = whole.get_mut(skip..skip + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        Ok(self.dev.write(start, &whole, ORIGIN)?)
    }

    fn block(&self, block: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.geo.block_size];
        self.dev.read(block << self.geo.block_bits, &mut bytes, ORIGIN)?;
        Ok(bytes)
    }

    fn store(&self) -> Result<Arc<Store>> {
        Ok(open_store(&self.dev, &self.clock, &self.options)?.0)
    }

    /// The volume as the view has it now.
    fn names(&self) -> Result<Arc<Names>> {
        let store = self.store()?;
        let parts = OptionParts::new(&self.options, &store)?;
        build(store, parts)
    }

    /// Puts an inode into its slot.
    fn put_inode(&self, store: &Store, ino: u32, inode: &Inode) -> Result<()> {
        let (block, offset) = inode_place(store, ino)?;
        let mut bytes = self.block(block).unwrap_or_else(|_| vec![0; self.geo.block_size]);
        if let Some(slot) = bytes.get_mut(offset..offset + self.geo.inode_size) {
            inode.encode_into(slot, None)?;
        }
        self.put(block << self.geo.block_bits, &bytes)
    }

    /// An inode of the file system's own.
    fn own_inode(&self, mode: u16, size: u64) -> Inode {
        let extra = (self.geo.inode_size - GOOD_OLD_INODE_SIZE).min(28) as u16;
        let mut inode = Inode::new(mode, extra);
        (inode.i_size, inode.i_links_count) = (size, 1);
        inode.i_flags = disk::flags::EXTENTS;
        inode
    }

    /// The superblock has a copy of the journal inode's map.
    fn mend_journal_inode(&mut self, store: &Store) -> Result<()> {
        if !self.sb.has_journal() || log_map(store).is_ok() {
            return Ok(());
        }
        if self.sb.s_jnl_backup_type != COPY_OF_I_BLOCK {
            self.missing.push("the journal".into());
            return Ok(());
        }
        let words = self.sb.s_jnl_blocks;
        let size = u64::from(words[16]) | u64::from(words[15]) << 32;
        let mut inode = self.own_inode(S_IFREG | 0o600, size);
        for (at, word) in words.iter().take(15).enumerate() {
            put_le32(&mut inode.i_block, 4 * at, *word);
        }
        if inode.i_block[..2] != [0x0a, 0xf3] {
            inode.i_flags = 0;
        }
        self.missing.push("the inode of the journal; its copy in the superblock is used".into());
        self.put_inode(store, self.sb.s_journal_inum, &inode)
    }

    /// Replays the log, if it is whole. It may have newer superblocks and descriptors.
    fn replay(&mut self) -> Result<()> {
        if !self.sb.needs_recovery() {
            return Ok(());
        }
        let store = self.store()?;
        let replay = |options| {
            let log = log_map(&store)?;
            Ok::<_, FsError>(Journal::recover(&*self.dev, &log, options)?)
        };
        // Nothing is written before the whole log was found good.
        let mut replayed = replay(RecoverOptions::default());
        if let Err(err) = &replayed {
            let what = format!("parts of the log: {err}");
            replayed = replay(RecoverOptions { salvage: true, ..RecoverOptions::default() });
            self.missing.push(what);
        }
        match replayed {
            Ok(recovery) if recovery.fast_commits > 0 => {
                self.missing.push(format!("{} fast commits of the log", recovery.fast_commits));
            }
            Ok(_) => {}
            Err(err) => self.missing.push(format!("the log, which is not replayed: {err}")),
        }
        let mut bytes = [0; SUPERBLOCK_BYTES];
        self.dev.read(SUPERBLOCK_OFFSET, &mut bytes, ORIGIN)?;
        if let Ok(newer) = Superblock::decode(&bytes) {
            let same = Geometry::new(&newer, u64::MAX).is_ok_and(|geo| geo == self.geo);
            if same && newer.verify_checksum(&bytes).is_ok() && newer.check_features().is_ok() {
                self.sb = newer;
            }
        }
        self.put_superblock(false)?;
        self.mend_descriptors()
    }
}
