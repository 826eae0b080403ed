//! Mount, recover, unmount.
//!
//! ```text
//!  mount    sb checked ─ log replayed ─ RECOVER set, flush ─ journal opened ─ orphans finished
//!  unmount  data, times ─ commit ─ checkpoint, flush ─ s_start = 0, flush ─ RECOVER cleared, flush
//! ```
//!
//! Promises: between the two the superblock on the device always has `needs_recovery`, so that
//! stock tools replay the log; after unmount there is no trace of us. A read-only mount writes
//! nothing, not even a replay: an image with a log to replay is refused.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use syncline_device::{BlockDevice, Clock, DeviceError, Kind, Origin};
use syncline_jbd2::{BufferCache, Checksums, Journal, JournalOptions, LogMap, Recovery};
use syncline_ondisk::extent::Node;
use syncline_ondisk::superblock::{
    STATE_ERROR, STATE_VALID, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock,
};
use syncline_ondisk::{CompatFeatures, FeatureCheck, Geometry, RoCompatFeatures, group::GroupCsum};

use crate::balloc::Balloc;
use crate::dcache::Dcache;
use crate::dir::live::DirConstants;
use crate::error::{FsError, Result};
use crate::extents::Mapping;
use crate::hot::HotFiles;
use crate::ialloc::Ialloc;
use crate::icache::Icache;
use crate::inode::InodeRef;
use crate::live::LiveLimits;
use crate::options::{LogFormat, MountOptions, SyncMode};
use crate::orphan::Orphans;
use crate::pagecache::{BUFFER_SHARE, INODE_SHARE, NAME_SHARE, PageCache};
use crate::relaxed::RelaxedFiles;
use crate::volume::{AbortHost, Inner, Latch, Volume};

/// Runs of blocks that a journal inode may consist of, at most.
const MAX_LOG_EXTENTS: usize = 4096;

/// What a mount found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountReport {
    /// Transactions replayed from the log.
    pub transactions_replayed: u32,
    /// Blocks written by the replay.
    pub blocks_replayed: u32,
    /// Orphans deleted or truncated.
    pub orphans: u32,
    /// Bytes in hot zones; less than was asked for on a volume that is too small for them.
    pub hot_zone_bytes: u64,
}

impl Volume {
    /// Mounts the ext4 volume on `dev`: replays its log, finishes its orphans. Timestamps and
    /// intervals come from `clock`.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] names a feature, [`FsError::Corrupt`] a broken structure; nothing
    /// has been written then, unless the log was replayed.
    pub fn mount(
        dev: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
    ) -> Result<Volume> {
        Ok(Volume::mount_report(dev, clock, options)?.0)
    }

    /// As [`Volume::mount`], and says what had to be repaired.
    ///
    /// # Errors
    /// As [`Volume::mount`].
    pub fn mount_report(
        dev: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
    ) -> Result<(Volume, MountReport)> {
        if options.log == LogFormat::Packed && options.sync != SyncMode::Eager {
            return Err(FsError::invalid("`log=packed` needs `sync=eager`; give both, or neither"));
        }
        let mut report = MountReport::default();
        let (sb, check) = read_superblock(&*dev)?;
        let read_only = options.read_only || dev.geometry().read_only;
        if let (FeatureCheck::ReadOnly(names), false) = (&check, read_only) {
            return Err(FsError::Unsupported(format!(
                "feature {} can only be read; mount with `ro`",
                names.join(", ")
            )));
        }
        if read_only {
            let inner = build(dev, clock, options, sb)?;
            inner.refuse_unclean_read_only()?;
            return Ok((Volume(inner), report));
        }
        if !sb.has_journal() {
            return Err(FsError::Unsupported(
                "an ext4 without a journal; add one with `tune2fs -j` or mount with `ro`".into(),
            ));
        }
        if let Some(recovery) = replay(&dev, &clock, &options, sb)? {
            report.transactions_replayed = recovery.transactions;
            report.blocks_replayed = recovery.blocks_replayed;
        }
        let (sb, _) = read_superblock(&*dev)?;
        let inner = build(dev, clock, options, sb)?;
        inner.open_for_writing()?;
        report.orphans = inner.process_orphans()?;
        report.hot_zone_bytes = inner.balloc.zone_bytes();
        Ok((Volume(inner), report))
    }

    /// Writes everything back and leaves the image clean. Other clones of the volume fail from then
    /// on. On an error the image is recoverable, as after a crash.
    ///
    /// # Errors
    /// The first failure of a write; whatever latched the volume before.
    pub fn unmount(self) -> Result<()> {
        if self.0.journal.get().is_none() {
            return Ok(());
        }
        self.syncfs()?;
        self.0.write_lazy_times()?;
        self.0.close()
    }

    /// Whether the volume was mounted read-only.
    pub fn is_read_only(&self) -> bool {
        self.0.journal.get().is_none()
    }
}

/// Reads and checks the superblock; nothing else is looked at.
pub(crate) fn read_superblock(dev: &dyn BlockDevice) -> Result<(Superblock, FeatureCheck)> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if dev.geometry().size_bytes < SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64 {
        return Err(FsError::Corrupt {
            inode: None,
            block: Some(0),
            offset: Some(SUPERBLOCK_OFFSET),
            what: "the device is too small to hold an ext4 superblock".into(),
        });
    }
    dev.read(SUPERBLOCK_OFFSET, &mut bytes, Origin::new(Kind::Metadata, true))?;
    let sb = Superblock::decode(&bytes)?;
    let check = sb.check_features()?;
    sb.verify_checksum(&bytes)?;
    Ok((sb, check))
}

/// Replays the log if there is anything in it. Nothing that was cached before stays cached.
fn replay(
    dev: &Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    options: &MountOptions,
    sb: Superblock,
) -> Result<Option<Recovery>> {
    let probe = build(Arc::clone(dev), Arc::clone(clock), options.clone(), sb)?;
    let log = probe.log_map()?;
    let recovery = Journal::recover(&**dev, &log, Default::default())?;
    Ok((recovery.transactions > 0).then_some(recovery))
}

/// Builds a volume without a journal. Reads the group descriptors for the totals.
fn build(
    dev: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    options: MountOptions,
    sb: Superblock,
) -> Result<Arc<Inner>> {
    let geo = Geometry::new(&sb, dev.geometry().size_bytes)?;
    let capacity = (options.cache_bytes / BUFFER_SHARE) as usize / geo.block_size;
    let buffers = BufferCache::new(Arc::clone(&dev), geo.block_size, capacity.max(1024));
    let desc_blocks: Vec<u64> = (0..geo.gdt_blocks).map(|nr| geo.desc_block(&sb, nr)).collect();
    let seed = sb.s_hash_seed[0] ^ (sb.s_mnt_count as u32) << 16;
    let mut inner = Inner {
        csum: GroupCsum::new(&sb),
        csum_seed: sb.csum_seed(),
        balloc: Balloc::new(&geo, &sb, (&[], None, &[]), &options),
        hot: HotFiles::new(&options)?,
        relaxed: RelaxedFiles::new(&options)?,
        ialloc: Ialloc::new(geo.group_count, 0, 0, seed),
        pages: PageCache::new(&options, geo.block_size)?,
        icache: Icache::new(options.cache_bytes / INODE_SHARE),
        dcache: Dcache::new(options.cache_bytes / NAME_SHARE),
        dir_format: DirConstants::new(&sb),
        orphans: Mutex::new(Orphans::default()),
        orphan_file: OnceLock::new(),
        sweep: Mutex::default(),
        rename_lock: Mutex::new(()),
        latch: Latch::default(),
        journal: OnceLock::new(),
        sb: Mutex::new(sb),
        dev,
        clock,
        live: Mutex::new(LiveLimits::of(&options)),
        options,
        geo,
        desc_blocks,
        buffers,
    };
    let (mut blocks, mut inodes, mut dirs) = (Vec::new(), 0u64, 0u64);
    inner.buffers.prefetch(&inner.desc_blocks);
    for group in 0..inner.geo.group_count {
        let desc = inner.group_desc(group)?;
        blocks.push(desc.bg_free_blocks_count);
        inodes += u64::from(desc.bg_free_inodes_count);
        dirs += u64::from(desc.bg_used_dirs_count);
    }
    let wants_zones = inner.options.hot_zones > 0;
    let zone = if wants_zones { Some(inner.zone()?.clone()) } else { None };
    let log = if wants_zones { inner.log_runs() } else { Vec::new() };
    let known = (&*blocks, zone, &*log);
    inner.balloc = Balloc::new(&inner.geo, &inner.sb.lock(), known, &inner.options);
    inner.ialloc = Ialloc::new(inner.geo.group_count, inodes, dirs, seed);
    Ok(Arc::new(inner))
}

impl Inner {
    /// Start and length of the log's extents as its inode has them: a hint for the allocator, so
    /// what cannot be read is not there. Opening the journal says what is wrong.
    fn log_runs(&self) -> Vec<(u64, u64)> {
        let ino = self.sb.lock().s_journal_inum;
        let Ok(raw) = self.read_inode(ino) else { return Vec::new() };
        let Ok(root) = Node::parse_header(&raw.i_block) else { return Vec::new() };
        let extents = (0..).map_while(|at| root.extent(at));
        extents.map(|extent| (extent.start, extent.len.into())).collect()
    }

    /// Where the log lies on the device.
    fn log_map(self: &Arc<Self>) -> Result<LogMap> {
        let ino = self.sb.lock().s_journal_inum;
        let inode = self.iget(ino)?;
        let mut log = LogMap { block_size: self.geo.block_size as u32, extents: Vec::new() };
        let blocks = (inode.state.read().size >> self.geo.block_bits) as u32;
        self.each_run(&inode, blocks, |start, len| log.extents.push((start, len)))?;
        Ok(log)
    }

    /// Physical runs of the first `blocks` blocks of a file without holes.
    fn each_run(
        &self,
        inode: &InodeRef,
        blocks: u32,
        mut each: impl FnMut(u64, u32),
    ) -> Result<()> {
        let (mut at, mut runs) = (0u32, 0);
        while at < blocks {
            let mapping = self.map_blocks(inode, &inode.state.read(), at, blocks - at)?;
            let Mapping::Mapped { pblk, len, .. } = mapping else {
                return Err(self.corrupt(Some(inode.ino), None, None, "hole in a system file"));
            };
            runs += 1;
            if len == 0 || runs > MAX_LOG_EXTENTS {
                return Err(self.corrupt(Some(inode.ino), None, None, "too many extents"));
            }
            each(pblk, len);
            at += len;
        }
        Ok(())
    }

    fn refuse_unclean_read_only(&self) -> Result<()> {
        if self.sb.lock().needs_recovery() {
            return Err(FsError::Unsupported(
                "needs_recovery on a read-only mount; run `syncline recover` on the image first"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Marks the volume as in use, then opens its journal (rule: RECOVER first, then the log).
    fn open_for_writing(self: &Arc<Self>) -> Result<()> {
        let log = self.log_map()?;
        self.load_orphan_file()?;
        {
            let mut sb = self.sb.lock();
            sb.set_needs_recovery(true);
            // On the device before the journal is: other programs must not see packed records. The
            // log is empty here, whatever wrote it last.
            syncline_ondisk::packed::mark(&mut sb, self.options.log == LogFormat::Packed);
            if sb.s_feature_compat.contains(CompatFeatures::ORPHAN_FILE) {
                sb.s_feature_ro_compat.insert(RoCompatFeatures::ORPHAN_PRESENT);
            }
            sb.s_mtime = self.clock.now_ns() / crate::time::NS_PER_S;
            sb.s_mnt_count = sb.s_mnt_count.saturating_add(1);
        }
        self.put_superblock()?;
        let kernels = if self.geo.metadata_csum { Checksums::V3 } else { Checksums::None };
        let options = JournalOptions {
            checksums: match (self.options.sync, self.options.log) {
                (SyncMode::Eager, LogFormat::Packed) => Checksums::Packed,
                (SyncMode::Eager, LogFormat::Jbd2) => Checksums::V1Async,
                (SyncMode::Ordered, _) => kernels,
            },
            checksums_at_rest: kernels,
            is_64bit: self.sb.lock().is_64bit(),
            commit_interval_ns: u64::from(self.options.commit_s) * crate::time::NS_PER_S,
            dirty_expire_ns: u64::from(self.options.dirty_expire_centisecs) * 10_000_000,
            checkpoint_step_blocks: match self.options.sync {
                SyncMode::Eager => crate::sweep::STEP_PAGES,
                SyncMode::Ordered => JournalOptions::default().checkpoint_step_blocks,
            },
        };
        let host = Arc::new(AbortHost(Arc::downgrade(self)));
        let journal = Journal::open(
            Arc::clone(&self.dev),
            log,
            Arc::clone(&self.buffers),
            Arc::clone(&self.clock),
            options,
            Some(host),
        )?;
        if journal.recorded_errno() != 0 {
            // As `ext4_clear_journal_err`: the error of the last mount is the volume's from now on.
            self.sb.lock().s_state |= STATE_ERROR;
            self.put_superblock()?;
            journal.clear_errno()?;
        }
        let _ = self.journal.set(journal);
        Ok(())
    }

    /// Finds the blocks of the orphan file.
    fn load_orphan_file(self: &Arc<Self>) -> Result<()> {
        let ino = {
            let sb = self.sb.lock();
            if !sb.s_feature_compat.contains(CompatFeatures::ORPHAN_FILE) {
                return Ok(());
            }
            sb.s_orphan_file_inum
        };
        let inode = self.iget(ino)?;
        let (size, generation) = {
            let st = inode.state.read();
            (st.size, st.raw.i_generation)
        };
        let count = (size >> self.geo.block_bits) as u32;
        if count > 4096 {
            return Err(self.corrupt(Some(ino), None, None, "orphan file too large"));
        }
        let mut blocks = Vec::new();
        self.each_run(&inode, count, |start, len| {
            blocks.extend(start..start + u64::from(len));
        })?;
        let _ = self.orphan_file.set((blocks.clone(), self.inode_csum_seed(ino, generation)));
        self.orphans.lock().set_file(ino, generation, blocks);
        Ok(())
    }

    /// Writes the superblock in its place, past the journal, and flushes. Only while no
    /// transaction can hold it: at mount before the journal opens, and after it has closed.
    fn put_superblock(&self) -> Result<()> {
        let origin = Origin::new(Kind::Metadata, true);
        let mut bytes = [0; SUPERBLOCK_BYTES];
        self.dev.read(SUPERBLOCK_OFFSET, &mut bytes, origin)?;
        {
            let mut sb = self.sb.lock();
            sb.s_wtime = self.clock.now_ns() / crate::time::NS_PER_S;
            sb.s_free_blocks_count = self.balloc.free_blocks();
            sb.s_free_inodes_count = self.ialloc.free_inodes() as u32;
            sb.encode_into(&mut bytes)?;
        }
        let result = self.dev.write(SUPERBLOCK_OFFSET, &bytes, origin);
        result
            .and_then(|()| self.dev.flush(origin))
            .map_err(|err: DeviceError| self.fail(err.into()))?;
        self.buffers.invalidate(SUPERBLOCK_OFFSET >> self.geo.block_bits);
        Ok(())
    }

    /// Last commit, checkpoint, clean journal, clean superblock.
    fn close(&self) -> Result<()> {
        self.latch.check()?;
        self.journal()?.shutdown()?;
        {
            let mut sb = self.sb.lock();
            sb.set_needs_recovery(false);
            syncline_ondisk::packed::mark(&mut sb, false);
            sb.s_feature_ro_compat.remove(RoCompatFeatures::ORPHAN_PRESENT);
            sb.s_state |= STATE_VALID;
        }
        self.put_superblock()?;
        self.latch.set(&FsError::invalid("the volume was unmounted"));
        Ok(())
    }
}
