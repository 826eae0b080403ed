//! Mount options, by Linux's names, and their `-o` syntax.
//!
//! [`MountOptions`] has the values and their defaults, [`VOLUME_OPTIONS`] (`table.rs`) a row for
//! each option: form, effect, and whether it may change while mounted. Parsing, help and
//! documentation come out of the rows (`spec.rs`). Unknown options are refused with the nearest
//! known name. Defaults are Linux's, but for `sync=`.

pub mod spec;
mod table;
#[cfg(test)]
mod tests;

use glob::Pattern;
use syncline_cache::VolumePolicy;

pub use self::table::VOLUME_OPTIONS;

use crate::error::{FsError, Result};

/// `cache=` where it is not given.
const USUAL_CACHE_BYTES: u64 = 256 << 20;

/// `log_unit=` without the option.
const LOG_UNIT_BYTES: u32 = 4096;

/// One part in this many of `cache=` is for everything that is not a file page: the three below.
pub(crate) const METADATA_SHARE: u64 = 4;
/// One part in this many is for metadata blocks.
pub(crate) const BUFFER_SHARE: u64 = 8;
/// One part in this many is for inodes.
pub(crate) const INODE_SHARE: u64 = 12;
/// One part in this many is for names.
pub(crate) const NAME_SHARE: u64 = 24;

/// When a read moves the access time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atime {
    /// Never.
    Noatime,
    /// When it is older than mtime or ctime, or older than a day (Linux's default).
    Relatime,
    /// At every read.
    Strictatime,
}

/// Reaction to a corrupt image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The volume latches read-only (the default here).
    RemountRo,
    /// The operation fails, others go on.
    Continue,
}

/// How much a read-only mount makes of a damaged volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rescue {
    /// Files that directories name (`rescue`).
    Named,
    /// Deleted files and inodes without a name, too (`undelete`).
    All,
}

/// Durability of fsync (`sync=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncMode {
    /// As the kernel's ext4 does with data=ordered: data in place, then a full journal commit.
    Ordered,
    /// The file's data and its part of the metadata go to the journal as one write, followed by
    /// one flush.
    Eager,
    /// fsync returns at once; every [`MountOptions::commit_s`] seconds a sync point makes the whole
    /// volume durable. A crash loses exactly the changes after the last sync point.
    Periodic,
}

impl SyncMode {
    /// Its name in the mount option.
    pub fn name(self) -> &'static str {
        match self {
            SyncMode::Ordered => "ordered",
            SyncMode::Eager => "eager",
            SyncMode::Periodic => "periodic",
        }
    }
}

/// Format of the journal's transactions (`log=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// jbd2's blocks, which stock tools recover.
    Jbd2,
    /// Records of the bytes that changed. While the volume is mounted, and after a crash until
    /// Syncline has recovered it, other programs refuse the image.
    Packed,
}

/// Order of write-back if too many pages are dirty (`writeback=`). Expired and synced data is
/// written file by file in each order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writeback {
    /// File by file, the one that has been dirty longest first, each in ascending order.
    File,
    /// Page by page, in the order in which the policy of the page cache would evict dirty pages.
    Policy,
    /// Page by page in file-offset order, CLOCK-style: a `spatialclock` over the dirty pages,
    /// independent of the policy of the page cache (informed-storage paper, section 5.3).
    Space,
}

impl Writeback {
    /// Its name in the mount option.
    pub fn name(self) -> &'static str {
        match self {
            Writeback::File => "file",
            Writeback::Policy => "policy",
            Writeback::Space => "space",
        }
    }
}

/// Allocation policy for blocks of files (`alloc=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alloc {
    /// ext4's places.
    Default,
    /// These, with zones at the front of flex groups for files that are updated often (hot-zones
    /// paper, section 2).
    HotZones,
    /// By expected lifetime: one region for short-lived data and data that is updated often; all
    /// other data gets the lowest free blocks.
    Lifetime,
}

impl Alloc {
    /// Every policy, in the order of reports.
    pub const ALL: [Alloc; 3] = [Alloc::Default, Alloc::HotZones, Alloc::Lifetime];

    /// Its name in the mount option.
    pub fn name(self) -> &'static str {
        match self {
            Alloc::Default => "default",
            Alloc::HotZones => "hot_zones",
            Alloc::Lifetime => "lifetime",
        }
    }
}

/// Times at which a write moves mtime and ctime of a file, and a new name those of its directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtimeUpdate {
    /// Every tick, as in ext4.
    #[default]
    Tick,
    /// Multiples of so many milliseconds, 1 to 1000 (coarse-mtime paper, section 4).
    Interval(u32),
    /// Every tick, and once more within a tick after a look. fsync keeps every time that follows a
    /// look, and else one every 100 ms (`inode/times.rs`).
    Seen,
}

/// Options of one mount: the defaults, changed by [`MountOptions::with`] or by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountOptions {
    /// No write of any kind reaches the device; the journal must be clean.
    pub read_only: bool,
    /// Reads past damage; implies `read_only`.
    pub rescue: Option<Rescue>,
    /// Durability of fsync (`sync=`); eager by default.
    pub sync: SyncMode,
    /// Format of the journal's transactions (`log=`); packed ones need [`SyncMode::Eager`] or
    /// [`SyncMode::Periodic`].
    pub log: LogFormat,
    /// Bytes to a multiple of which packed records are padded (`log_unit=`).
    pub log_unit_bytes: u32,
    /// Pages of changed data above which an eager fsync writes them in place instead of to the log
    /// (`eager_threshold=`). Of this and the next two, an option that is `None` is decided by the
    /// measured costs of the device.
    pub eager_threshold: Option<u32>,
    /// Bytes of new blocks from which on it does so (`eager_stream=`).
    pub eager_stream_bytes: Option<u64>,
    /// Bytes of consecutive overwritten blocks from which on it does so (`eager_run=`).
    pub eager_run_bytes: Option<u64>,
    /// Access time policy.
    pub atime: Atime,
    /// Reading a directory never moves its access time (`nodiratime`).
    pub nodiratime: bool,
    /// Timestamps alone do not dirty the inode on disk until fsync, eviction or a day.
    pub lazytime: bool,
    /// Journal commit interval in seconds (`commit=`).
    pub commit_s: u32,
    /// Page cache limit in bytes (`cache=`), metadata included.
    pub cache_bytes: u64,
    /// Bytes of it that are taken from the system at mount for pages of files (`cache_reserve=`).
    pub cache_reserve_bytes: u64,
    /// Age in hundredths of a second after which dirty data is written (`dirty_expire_centisecs`).
    pub dirty_expire_centisecs: u32,
    /// Interval of the periodic write-back (`dirty_writeback_centisecs`).
    pub dirty_writeback_centisecs: u32,
    /// Share of the cache, in per cent, above which write-back starts in the background. `None`:
    /// Linux's, or that of [`Writeback::Space`]; so with the next.
    pub dirty_background_ratio: Option<u32>,
    /// Share of the cache, in per cent, above which a writer writes back itself.
    pub dirty_ratio: Option<u32>,
    /// Granularity of timestamps in milliseconds: the kernel's tick (4 at HZ=250).
    pub timer_tick_ms: u32,
    /// Changes of mtime and ctime that a write makes, and that fsync keeps (`mtime_update=`).
    pub mtime_update: MtimeUpdate,
    /// Reaction to corruption.
    pub errors: OnError,
    /// True if the caller may use the root-reserved blocks.
    pub privileged: bool,
    /// True if the caller knows the writer and clears set-id bits itself. Otherwise a write clears
    /// them unless `privileged` is set.
    pub set_id_by_caller: bool,
    /// Freed blocks are discarded after the commit that frees them.
    pub discard: bool,
    /// Replacement policy of the page cache (`policy=`).
    pub policy: VolumePolicy,
    /// Order of write-back (`writeback=`). `None`: [`MountOptions::writeback_order`] decides.
    pub writeback: Option<Writeback>,
    /// Allocation policy (`alloc=`).
    pub alloc: Alloc,
    /// Regions kept for files that are updated often, at most one a flex group (`hot_zones=`), 0
    /// for as many as suit the volume (hot-zones paper, section 2). [`Alloc::Lifetime`] joins them
    /// to one.
    pub hot_zones: u32,
    /// Size of each in bytes (`hot_zone_size=`), 0 for the size that suits the volume.
    pub hot_zone_size_bytes: u64,
    /// File names that are hot beside those that are known (`hot=GLOB`, repeatable).
    pub hot: Vec<String>,
    /// Delayed data of a file that is renamed over another, or that was cut to nothing and written
    /// again, is not left to the periodic write-back (`noauto_da_alloc` turns it off).
    pub auto_da_alloc: bool,
    /// Names of files that need not survive a power cut (`relaxed=GLOB`, repeatable): fsync of them
    /// returns at once, and their data may stay in a write buffer (informed-storage paper, 6.6).
    pub relaxed: Vec<String>,
    /// With [`SyncMode::Periodic`], names of files whose fsync forces a sync point (`strict=GLOB`,
    /// repeatable).
    pub strict: Vec<String>,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            rescue: None,
            sync: SyncMode::Eager,
            log: LogFormat::Jbd2,
            log_unit_bytes: LOG_UNIT_BYTES,
            eager_threshold: None,
            eager_stream_bytes: None,
            eager_run_bytes: None,
            atime: Atime::Relatime,
            nodiratime: false,
            lazytime: false,
            commit_s: 5,
            cache_bytes: USUAL_CACHE_BYTES,
            cache_reserve_bytes: 0,
            dirty_expire_centisecs: 3000,
            dirty_writeback_centisecs: 500,
            dirty_background_ratio: None,
            dirty_ratio: None,
            timer_tick_ms: 4,
            mtime_update: MtimeUpdate::Tick,
            errors: OnError::RemountRo,
            privileged: true,
            set_id_by_caller: false,
            discard: false,
            policy: VolumePolicy::default(),
            writeback: None,
            alloc: Alloc::Default,
            hot_zones: 0,
            hot_zone_size_bytes: 0,
            hot: Vec::new(),
            auto_da_alloc: true,
            relaxed: Vec::new(),
            strict: Vec::new(),
        }
    }
}

impl MountOptions {
    /// Changes fields.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Parses a comma-separated `-o` list on top of the defaults.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an unknown name (with the nearest known one) or a bad value.
    pub fn parse(list: &str) -> Result<Self> {
        let mut options = MountOptions::default();
        for item in list.split(',').filter(|item| !item.is_empty()) {
            options.apply(item)?;
        }
        Ok(options)
    }

    /// As [`MountOptions::apply`], for a caller with options of its own beside these: an unknown
    /// name is refused with the nearest of both.
    ///
    /// # Errors
    /// As [`MountOptions::parse`].
    pub fn apply_or(&mut self, item: &str, others: &[&str]) -> Result<()> {
        spec::apply(VOLUME_OPTIONS, self, item).unwrap_or_else(|| {
            let names = VOLUME_OPTIONS.iter().map(|row| row.name);
            Err(spec::unknown(item, names.chain(others.iter().copied())))
        })
    }

    /// Applies one `name` or `name=value`.
    ///
    /// # Errors
    /// As [`MountOptions::parse`].
    pub fn apply(&mut self, item: &str) -> Result<()> {
        self.apply_or(item, &[])
    }

    /// The options as [`MountOptions::apply`] takes them one by one, for another process. `None`:
    /// a field has a value that no option gives.
    pub fn items(&self) -> Option<Vec<String>> {
        let mut items: Vec<String> =
            VOLUME_OPTIONS.iter().filter_map(|row| row.item(self)).collect();
        for (name, rules) in
            [("hot", &self.hot), ("relaxed", &self.relaxed), ("strict", &self.strict)]
        {
            items.extend(rules.iter().map(|rule| format!("{name}={rule}")));
        }
        let mut same = MountOptions::default();
        items.iter().try_for_each(|item| same.apply(item)).ok()?;
        (same == *self).then_some(items)
    }

    /// Order of write-back: the given one, else along the files if the cache is smaller than usual.
    /// Ordered mode writes file by file, as Linux does.
    pub fn writeback_order(&self) -> Writeback {
        let is_small = self.cache_bytes < USUAL_CACHE_BYTES;
        self.writeback.unwrap_or(match self.sync {
            SyncMode::Eager | SyncMode::Periodic if is_small => Writeback::Space,
            SyncMode::Eager | SyncMode::Periodic | SyncMode::Ordered => Writeback::File,
        })
    }

    /// Refuses options that contradict each other.
    ///
    /// # Errors
    /// [`FsError::Invalid`]; the message says which to add or to leave out.
    pub(crate) fn check_together(&self) -> Result<()> {
        let periodic = self.sync == SyncMode::Periodic;
        let refused = if self.rescue.is_some() && !self.read_only {
            "`rescue` and `undelete` only read; leave `rw` out"
        } else if self.log == LogFormat::Packed && self.sync == SyncMode::Ordered {
            "`log=packed` needs `sync=eager` or `sync=periodic`; leave `sync=ordered` or it out"
        } else if self.log != LogFormat::Packed && self.log_unit_bytes != LOG_UNIT_BYTES {
            "`log_unit` is for `log=packed`; give both, or neither"
        } else if !self.strict.is_empty() && !periodic {
            "`strict` is for `sync=periodic`; give both, or neither"
        } else if !self.relaxed.is_empty() && periodic {
            "`relaxed` is not for `sync=periodic`, where every file but those of `strict` may lose \
             what came after the last sync point; leave it out"
        } else {
            return Ok(());
        };
        Err(FsError::invalid(refused))
    }

    fn set_rescue(&mut self, rescue: Rescue) {
        (self.read_only, self.rescue) = (true, Some(rescue));
    }

    fn set_alloc(&mut self, alloc: Alloc) {
        self.alloc = alloc;
        if alloc == Alloc::Default {
            self.hot_zones = 0;
        }
    }

    fn set_hot_zones(&mut self, zones: u32) {
        self.hot_zones = zones;
        self.alloc = match (self.alloc, zones) {
            (_, 0) => Alloc::Default,
            (Alloc::Default, _) => Alloc::HotZones,
            (chosen, _) => chosen,
        };
    }

    fn set_writeback(&mut self, expire_centisecs: u32, background_ratio: Option<u32>) {
        self.dirty_expire_centisecs = expire_centisecs;
        self.dirty_background_ratio = background_ratio;
    }
}

/// Reads a rule of the mount option `option`: `*`, `?` and `[...]`, matched with the last part of a
/// path.
///
/// # Errors
/// [`FsError::Invalid`] if the rule is no glob or has a `/`.
pub(crate) fn check_glob(option: &str, rule: &str) -> Result<Pattern> {
    let bad = |why: &str| FsError::invalid(format!("mount option `{option}={rule}`: {why}"));
    if rule.contains('/') {
        return Err(bad("a rule is for file names, not for paths; leave out the `/`"));
    }
    Pattern::new(rule).map_err(|err| bad(&format!("{}; give a glob as `*.db`", err.msg)))
}

/// Limits of dirty data: amount and age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveLimits {
    /// Age at which dirty data is written, in hundredths of a second; 1 to 360,000.
    pub dirty_expire_centisecs: u32,
    /// Dirty data in per cent of the cache from which on it is written in the background; to 100.
    pub dirty_background_ratio: u32,
    /// The same, from which on writers write themselves; 1 to 100.
    pub dirty_ratio: u32,
}

/// Linux's shares of the cache that may be dirty, in per cent: in the background, at most.
const DIRTY_RATIOS: (u32, u32) = (10, 20);
/// The most of a small cache.
const DIRTY_RATIOS_MAX: (u32, u32) = (50, 75);

impl LiveLimits {
    /// Limits of a mount: the given options, else Linux's shares. With [`Writeback::Space`] they
    /// are shares of the usual cache where `cache=` is smaller, up to half and three quarters of
    /// it: more waiting pages give longer runs of neighbours.
    pub(crate) fn of(options: &MountOptions) -> LiveLimits {
        let share = |given: Option<u32>, ratio: u32, most: u32| {
            let bytes = match options.writeback_order() {
                Writeback::File | Writeback::Policy => USUAL_CACHE_BYTES,
                Writeback::Space => options.cache_bytes.clamp(1, USUAL_CACHE_BYTES),
            };
            let scaled = u64::from(ratio) * USUAL_CACHE_BYTES / bytes;
            given.unwrap_or(scaled.min(u64::from(most)) as u32)
        };
        LiveLimits {
            dirty_expire_centisecs: options.dirty_expire_centisecs,
            dirty_background_ratio: share(
                options.dirty_background_ratio,
                DIRTY_RATIOS.0,
                DIRTY_RATIOS_MAX.0,
            ),
            dirty_ratio: share(options.dirty_ratio, DIRTY_RATIOS.1, DIRTY_RATIOS_MAX.1),
        }
    }

    /// # Errors
    /// [`FsError::Invalid`] for a limit that the option of its name refuses.
    pub(crate) fn check(&self) -> Result<()> {
        let mut scratch = MountOptions::default();
        scratch.apply(&format!("dirty_expire_centisecs={}", self.dirty_expire_centisecs))?;
        scratch.apply(&format!("dirty_background_ratio={}", self.dirty_background_ratio))?;
        scratch.apply(&format!("dirty_ratio={}", self.dirty_ratio))
    }
}
