//! Mount, recover, unmount.
//!
//! ```text
//!  mount    sb checked ─ log replayed (emptied if RECOVER is not set) ─ RECOVER set, flush
//!           ─ journal opened ─ orphans finished
//!  unmount  data, times ─ commit ─ checkpoint, flush ─ s_start = 0, flush ─ RECOVER cleared, flush
//! ```
//!
//! Promises: between mount and unmount the superblock on the device always has `needs_recovery`, so
//! that stock tools replay the log. After unmount the image is a plain clean ext4. A read-only
//! mount writes nothing, not even a replay: it refuses an image with a log to replay, and
//! `in_memory` recovers that one for readers.

mod fast_commits;
pub(crate) mod in_memory;
mod rescue;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use syncline_base::lockrank::Mutex;
use syncline_device::{BlockDevice, Clock, CostDevice, DeviceError, Kind, Origin};
use syncline_jbd2::{Checksums, Journal, JournalOptions, LogMap, Recovery};
use syncline_ondisk::extent::Node;
use syncline_ondisk::superblock::{
    ROOT_INO, STATE_ERROR, STATE_VALID, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock,
};
use syncline_ondisk::{CompatFeatures, FeatureCheck, RoCompatFeatures, inode as disk};

use crate::data::Files;
use crate::data::durability::RelaxedFiles;
use crate::data::engine::engine;
use crate::data::schedule::state::Schedule;
use crate::data::sync::sync_all;
use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::inode::Inodes;
use crate::inode::icache::Icache;
use crate::inode::iget::iget;
use crate::inode::lazytime::write_lazy_times;
use crate::inode::orphans::Orphans;
use crate::inode::recovery::process_orphans;
use crate::inode::table::{inode_csum_seed, read_inode};
use crate::map::extents::Mapping;
use crate::map::extents::search::map_blocks;
use crate::names::Names;
use crate::names::dcache::Dcache;
use crate::options::{Alloc, INODE_SHARE, LogFormat, MountOptions, NAME_SHARE};
use crate::pages::PageCache;
use crate::ranks;
use crate::space::Space;
use crate::space::balloc::Balloc;
use crate::space::hot::HotFiles;
use crate::space::ialloc::Ialloc;
use crate::store::group::group_desc;
use crate::store::host::JournalHost;
use crate::store::validity::system_zone;
use crate::store::{Committer, Store};

/// Runs of blocks that a journal inode may consist of, at most.
const MAX_LOG_EXTENTS: usize = 4096;

/// Results of a mount: its recovery, and the settings in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountReport {
    /// Transactions replayed from the log.
    pub transactions_replayed: u32,
    /// Fast commits applied behind them.
    pub fast_commits: u32,
    /// Blocks written by the replay.
    pub blocks_replayed: u32,
    /// Orphans deleted or truncated.
    pub orphans: u32,
    /// Hot zones, and bytes in all of them; less than was asked for on a volume that is too small.
    pub hot_zones: u32,
    /// See above.
    pub hot_zone_bytes: u64,
}

/// Mounts the ext4 volume on `dev`; see [`crate::Volume::mount_report`].
///
/// # Errors
/// [`FsError::Unsupported`] names a feature, [`FsError::Corrupt`] a broken structure; nothing has
/// been written then, unless the log was replayed.
pub(crate) fn mount(
    dev: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    options: MountOptions,
) -> Result<(Arc<Names>, MountReport)> {
    options.check_together()?;
    let mut report = MountReport::default();
    if options.rescue.is_some() {
        return Ok((rescue::mount(dev, &clock, &options)?, report));
    }
    let measured = engine(options.sync)
        .uses_costs()
        .then(|| Arc::new(CostDevice::new(Arc::clone(&dev), Arc::clone(&clock))));
    let dev = measured.clone().map_or(dev, |measured| measured as Arc<dyn BlockDevice>);
    let (mut store, check) = open_store(&dev, &clock, &options)?;
    let read_only = options.read_only || dev.geometry().read_only;
    if !read_only {
        check_can_be_written(&store.sb.lock(), &check)?;
    }
    let parts = OptionParts::new(&options, &store)?;
    if read_only {
        refuse_unclean_read_only(&store.sb.lock())?;
        if let Some(measured) = measured {
            let _ = store.costs.set(measured);
        }
        return Ok((build(store, parts)?, report));
    }
    let recovery = if store.sb.lock().needs_recovery() {
        Journal::recover(&*dev, &log_map(&store)?, Default::default())?
    } else {
        // As in Linux, and as readers see the volume.
        Journal::discard(&*dev, &log_map(&store)?)?;
        Recovery::default()
    };
    let mut replayed = recovery.transactions > 0;
    if recovery.fast_commits > 0 {
        // Through the log as it is now: the superblock may have changed.
        store = open_store(&dev, &clock, &options)?.0;
        let log = log_map(&store)?;
        let place = (&log, store.geo.inode_size);
        (report.fast_commits, report.orphans) =
            fast_commits::replay(&dev, &clock, &options, place)?;
        // The transaction that took their place.
        Journal::recover(&*dev, &log, Default::default())?;
        replayed = true;
    }
    if replayed {
        report.transactions_replayed = recovery.transactions;
        report.blocks_replayed = recovery.blocks_replayed;
        // Superblock and every block that was read may have changed.
        store = open_store(&dev, &clock, &options)?.0;
    }
    if let Some(measured) = measured {
        let _ = store.costs.set(measured);
    }
    let names = build(store, parts)?;
    open_for_writing(&names)?;
    report.orphans += process_orphans(&names)?;
    (report.hot_zones, report.hot_zone_bytes) = names.balloc.zones();
    Ok((names, report))
}

/// Makes a volume writable that was mounted read-only. Its device can be written to by now.
pub(crate) fn make_writable(names: &Arc<Names>) -> Result<()> {
    if names.journal.get().is_some() {
        return Ok(());
    }
    let (sb, check) = read_superblock(&*names.dev)?;
    check_can_be_written(&sb, &check)?;
    refuse_unclean_read_only(&sb)?;
    if sb != *names.sb.lock() {
        let what = "another program has changed the image; unmount it, and mount it again";
        return Err(FsError::invalid(what));
    }
    open_for_writing(names)?;
    process_orphans(names)?;
    Ok(())
}

/// Refuses features that can only be read, and a volume without a journal.
fn check_can_be_written(sb: &Superblock, check: &FeatureCheck) -> Result<()> {
    if let FeatureCheck::ReadOnly(names) = check {
        let names = names.join(", ");
        let text = format!("feature {names} can only be read; mount with `ro`");
        return Err(FsError::Unsupported(text));
    }
    let cluster_bits = sb.s_log_cluster_size.saturating_sub(sb.s_log_block_size);
    if sb.s_blocks_count.trailing_zeros() < cluster_bits {
        let text = "a last cluster that is not whole; mount with `ro`";
        return Err(FsError::Unsupported(text.into()));
    }
    if !sb.has_journal() {
        return Err(FsError::Unsupported(
            "an ext4 without a journal; add one with `tune2fs -j` or mount with `ro`".into(),
        ));
    }
    Ok(())
}

/// Writes everything back and leaves the image clean.
///
/// # Errors
/// The first failure of a write; whatever latched the volume before.
pub(crate) fn unmount(names: &Names) -> Result<()> {
    if names.journal.get().is_none() {
        return Ok(());
    }
    sync_all(names)?;
    write_lazy_times(names)?;
    close_volume(names)
}

/// Reads and checks the superblock, and nothing else.
fn read_superblock(dev: &dyn BlockDevice) -> Result<(Superblock, FeatureCheck)> {
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

/// Opens the parts that reading needs: superblock, geometry, locations of the descriptors.
fn open_store(
    dev: &Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    options: &MountOptions,
) -> Result<(Arc<Store>, FeatureCheck)> {
    let (sb, check) = read_superblock(&**dev)?;
    Ok((Arc::new(Store::new(Arc::clone(dev), Arc::clone(clock), options.clone(), sb)?), check))
}

/// The parts that depend only on the mount options. They are made first, so that a refused option
/// leaves the image unchanged.
struct OptionParts {
    pages: PageCache,
    hot: HotFiles,
    relaxed: RelaxedFiles,
}

impl OptionParts {
    fn new(options: &MountOptions, store: &Store) -> Result<OptionParts> {
        let engine = engine(options.sync);
        let pages = PageCache::new(options, store.geo.block_size);
        Ok(OptionParts {
            pages: if engine.owner_commits() { pages.with_changes_held() } else { pages },
            hot: HotFiles::new(options, store.dev.geometry().write_hints)?,
            relaxed: RelaxedFiles::new(options, engine.sends_relaxed())?,
        })
    }
}

/// The allocators, from the group descriptors.
fn open_space(store: Arc<Store>, hot: HotFiles) -> Result<Space> {
    let (mut blocks, mut inodes, mut dirs) = (Vec::new(), 0u64, 0u64);
    store.buffers.prefetch(&store.desc_blocks);
    for group in 0..store.geo.group_count {
        let desc = group_desc(&store, group)?;
        blocks.push(desc.bg_free_blocks_count);
        inodes += u64::from(desc.bg_free_inodes_count);
        dirs += u64::from(desc.bg_used_dirs_count);
    }
    let (balloc, seed) = {
        let wants_zones = store.options.alloc != Alloc::Default;
        let zone = if wants_zones { Some(system_zone(&store)?) } else { None };
        let log = if wants_zones { log_runs(&store) } else { Vec::new() };
        let sb = store.sb.lock();
        let seed = sb.s_hash_seed[0] ^ (sb.s_mnt_count as u32) << 16;
        (Balloc::new(&store.geo, &sb, (&blocks, zone, &log), &store.options), seed)
    };
    let ialloc = Ialloc::new(store.geo.group_count, inodes, dirs, seed);
    Ok(Space { store, balloc, hot, ialloc })
}

/// Builds the volume from its parts, without a journal.
fn build(store: Arc<Store>, parts: OptionParts) -> Result<Arc<Names>> {
    check_root(&store)?;
    let OptionParts { pages, hot, relaxed } = parts;
    let cache_bytes = store.options.cache_bytes;
    let inodes = Arc::new(Inodes {
        space: open_space(store, hot)?,
        pages,
        icache: Icache::new(cache_bytes / INODE_SHARE),
        orphans: Mutex::new(ranks::ORPHANS, Orphans::default()),
        newer_since_ns: AtomicU64::new(0),
    });
    let schedule = Schedule::new(&inodes.options);
    let engine = engine(inodes.options.sync);
    let files = Files { inodes, engine, relaxed, schedule };
    let dcache = Dcache::new(cache_bytes / NAME_SHARE);
    let names = Arc::new(Names { files, dcache, rename_lock: Mutex::new(ranks::RENAME, ()) });
    if names.engine.owner_commits() {
        let weak: Weak<dyn Committer> = Arc::<Names>::downgrade(&names);
        let _ = names.committer.set(weak);
    }
    Ok(names)
}

/// Start and length of the log's extents as its inode has them: a hint for the allocator, so runs
/// that cannot be read are left out. Opening the journal reports the error.
fn log_runs(store: &Store) -> Vec<(u64, u64)> {
    let ino = store.sb.lock().s_journal_inum;
    let Ok(raw) = read_inode(store, ino) else { return Vec::new() };
    let Ok(root) = Node::parse_header(&raw.i_block) else { return Vec::new() };
    let extents = (0..).map_while(|at| root.extent(at));
    extents.map(|extent| (extent.start, extent.len.into())).collect()
}

/// Returns the blocks of the log on the device.
fn log_map(store: &Store) -> Result<LogMap> {
    let ino = store.sb.lock().s_journal_inum;
    let inode = Inode::new(ino, system_inode(store, ino, "the journal")?, 0);
    let mut log = LogMap { block_size: store.geo.block_size as u32, extents: Vec::new() };
    let blocks = (inode.state.read().size >> store.geo.block_bits) as u32;
    each_run(store, &inode, blocks, |start, len| log.extents.push((start, len)))?;
    Ok(log)
}

/// Reads an inode that the superblock names, which must be a file.
fn system_inode(store: &Store, ino: u32, what: &str) -> Result<disk::Inode> {
    match read_inode(store, ino) {
        Ok(raw) if raw.is_file() && raw.i_links_count > 0 => Ok(raw),
        Ok(_) | Err(FsError::Stale) => {
            Err(store.corrupt(Some(ino), None, None, format!("{what} is no file")))
        }
        Err(other) => Err(other),
    }
}

/// Refuses a volume without a root directory, in which nothing could be found.
fn check_root(store: &Store) -> Result<()> {
    match read_inode(store, ROOT_INO) {
        Ok(raw) if raw.is_dir() && raw.i_links_count > 0 && raw.i_size > 0 => Ok(()),
        Ok(_) | Err(FsError::Stale) => {
            let what = "there is no root directory";
            Err(store.corrupt(Some(ROOT_INO), None, None, what))
        }
        Err(other) => Err(other),
    }
}

/// Physical runs of the first `blocks` blocks of a file without holes.
fn each_run(
    store: &Store,
    inode: &Inode,
    blocks: u32,
    mut each: impl FnMut(u64, u32),
) -> Result<()> {
    let (mut at, mut runs) = (0u32, 0);
    while at < blocks {
        let mapping = map_blocks(store, inode, &inode.state.read(), at, blocks - at)?;
        let Mapping::Mapped { pblk, len, .. } = mapping else {
            return Err(store.corrupt(Some(inode.ino), None, None, "hole in a system file"));
        };
        runs += 1;
        if len == 0 || runs > MAX_LOG_EXTENTS {
            return Err(store.corrupt(Some(inode.ino), None, None, "too many extents"));
        }
        each(pblk, len);
        at += len;
    }
    Ok(())
}

fn refuse_unclean_read_only(sb: &Superblock) -> Result<()> {
    if sb.needs_recovery() {
        return Err(FsError::Unsupported(
            "needs_recovery on a read-only mount; run `syncline recover` on the image first".into(),
        ));
    }
    Ok(())
}

/// Marks the volume as in use, then opens its journal (rule: RECOVER first, then the log).
fn open_for_writing(files: &Files) -> Result<()> {
    let inodes = &files.inodes;
    let log = log_map(inodes)?;
    load_orphan_file(inodes)?;
    {
        let mut sb = inodes.sb.lock();
        sb.set_needs_recovery(true);
        sb.modernise();
        // On the device before the journal is: other programs must not see packed records. The log
        // is empty here, whatever wrote it last.
        syncline_ondisk::packed::mark(&mut sb, inodes.options.log == LogFormat::Packed);
        if sb.s_feature_compat.contains(CompatFeatures::ORPHAN_FILE) {
            sb.s_feature_ro_compat.insert(RoCompatFeatures::ORPHAN_PRESENT);
        }
        sb.s_mtime = inodes.clock.now_ns() / crate::time::NS_PER_S;
        sb.s_mnt_count = sb.s_mnt_count.saturating_add(1);
    }
    put_superblock(inodes)?;
    let kernels = if inodes.geo.metadata_csum { Checksums::V3 } else { Checksums::None };
    let (is_64bit, keeps_fast_commit_area) = {
        let sb = inodes.sb.lock();
        (sb.is_64bit(), sb.s_feature_compat.contains(CompatFeatures::FAST_COMMIT))
    };
    let options = JournalOptions {
        is_64bit,
        commit_interval_ns: u64::from(inodes.options.commit_s) * crate::time::NS_PER_S,
        dirty_expire_ns: u64::from(inodes.options.dirty_expire_centisecs) * 10_000_000,
        log_unit_bytes: inodes.options.log_unit_bytes,
        keeps_fast_commit_area,
        ..files.engine.journal_options(inodes.options.log, kernels)
    };
    let host = Arc::new(JournalHost(Arc::downgrade(&inodes.store)));
    let journal = Journal::open(
        Arc::clone(&inodes.dev),
        log,
        Arc::clone(&inodes.buffers),
        Arc::clone(&inodes.clock),
        options,
        Some(host),
    )?;
    if journal.recorded_errno() != 0 {
        // As `ext4_clear_journal_err`: the error of the last mount is the volume's from now on.
        inodes.sb.lock().s_state |= STATE_ERROR;
        put_superblock(inodes)?;
        journal.clear_errno()?;
    }
    let _ = inodes.journal.set(journal);
    Ok(())
}

/// Finds the blocks of the orphan file.
fn load_orphan_file(inodes: &Arc<Inodes>) -> Result<()> {
    let ino = {
        let sb = inodes.sb.lock();
        if !sb.s_feature_compat.contains(CompatFeatures::ORPHAN_FILE) {
            return Ok(());
        }
        sb.s_orphan_file_inum
    };
    system_inode(inodes, ino, "the orphan file")?;
    let inode = iget(inodes, ino)?;
    let (size, generation) = {
        let st = inode.state.read();
        (st.size, st.raw.i_generation)
    };
    let count = (size >> inodes.geo.block_bits) as u32;
    if count > 4096 {
        return Err(inodes.corrupt(Some(ino), None, None, "orphan file too large"));
    }
    let mut blocks = Vec::new();
    each_run(inodes, &inode, count, |start, len| {
        blocks.extend(start..start + u64::from(len));
    })?;
    let _ = inodes.orphan_file.set((blocks.clone(), inode_csum_seed(inodes, ino, generation)));
    inodes.orphans.lock().set_file(ino, generation, blocks);
    Ok(())
}

/// Writes the superblock in its place, past the journal, and flushes. Only while no
/// transaction can hold it: at mount before the journal opens, and after it has closed.
fn put_superblock(space: &Space) -> Result<()> {
    let origin = Origin::new(Kind::Metadata, true);
    let mut bytes = [0; SUPERBLOCK_BYTES];
    space.dev.read(SUPERBLOCK_OFFSET, &mut bytes, origin)?;
    {
        let mut sb = space.sb.lock();
        sb.s_wtime = space.clock.now_ns() / crate::time::NS_PER_S;
        if let Some(found) = space.found.lock().take() {
            sb.note_errors(&found);
        }
        sb.s_free_blocks_count = space.balloc.free_blocks() << space.geo.cluster_bits;
        sb.s_free_inodes_count = space.ialloc.free_inodes() as u32;
        sb.encode_into(&mut bytes)?;
    }
    let result = space.dev.write(SUPERBLOCK_OFFSET, &bytes, origin);
    result
        .and_then(|()| space.dev.flush(origin))
        .map_err(|err: DeviceError| space.fail(err.into()))?;
    space.buffers.invalidate(SUPERBLOCK_OFFSET >> space.geo.block_bits);
    Ok(())
}

/// Last commit, checkpoint, clean journal, clean superblock.
fn close_volume(space: &Space) -> Result<()> {
    space.latch.check()?;
    space.journal()?.shutdown()?;
    {
        let mut sb = space.sb.lock();
        sb.set_needs_recovery(false);
        syncline_ondisk::packed::mark(&mut sb, false);
        sb.s_feature_ro_compat.remove(RoCompatFeatures::ORPHAN_PRESENT);
        sb.s_state |= STATE_VALID;
    }
    put_superblock(space)?;
    space.latch.set(&FsError::invalid("the volume was unmounted"));
    Ok(())
}
