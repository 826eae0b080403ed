//! Mount options, by Linux's names, and their `-o` syntax.
//!
//! Unknown options are refused with the nearest known name. Defaults are Linux's, but for `sync=`.

use crate::error::{FsError, Result};

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

/// What is done when the image is found corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The volume latches read-only (the default here).
    RemountRo,
    /// The operation fails, others go on.
    Continue,
}

/// How fsync makes a file durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// As the kernel's ext4 does with data=ordered: data in place, then a full journal commit.
    Ordered,
    /// The file's data and its part of the metadata go to the journal as one write, followed by
    /// one flush.
    Eager,
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

/// In which order write-back takes dirty pages where they are too many (`writeback=`). What is old,
/// or synced, is written file by file with both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writeback {
    /// File by file, the one that has been dirty longest first, each in ascending order.
    File,
    /// Page by page, in the order in which the policy of the page cache would give up a cache of
    /// dirty pages.
    Policy,
}

/// Where blocks of files go (`alloc=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alloc {
    /// ext4's places.
    Default,
    /// These, with zones at the front of flex groups for files that are updated often (hot-zones
    /// paper, section 2).
    HotZones,
    /// By expected lifetime: one region for what is short-lived or updated often, everything else
    /// as low as there is room.
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

/// Zones where a policy wants some and `hot_zones=` does not say how many (hot-zones paper, section
/// 2: four hold the databases of each of ten phones).
const HOT_ZONES: u32 = 4;

/// Options of one mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// No write of any kind reaches the device; the journal must be clean.
    pub read_only: bool,
    /// How fsync works (`sync=`); eager unless said otherwise.
    pub sync: SyncMode,
    /// Format of the journal's transactions (`log=`); packed ones need [`SyncMode::Eager`].
    pub log: LogFormat,
    /// Pages of changed data above which an eager fsync writes them in place instead
    /// (`eager_threshold=`).
    pub eager_threshold: u32,
    /// Access time policy.
    pub atime: Atime,
    /// Timestamps alone do not dirty the inode on disk until fsync, eviction or a day.
    pub lazytime: bool,
    /// Journal commit interval in seconds (`commit=`).
    pub commit_s: u32,
    /// Page cache limit in bytes (`cache=`), metadata included.
    pub cache_bytes: u64,
    /// Age in hundredths of a second after which dirty data is written (`dirty_expire_centisecs`).
    pub dirty_expire_centisecs: u32,
    /// Interval of the periodic write-back (`dirty_writeback_centisecs`).
    pub dirty_writeback_centisecs: u32,
    /// Share of the cache, in per cent, above which write-back starts in the background.
    pub dirty_background_ratio: u32,
    /// Share of the cache, in per cent, above which a writer writes back itself.
    pub dirty_ratio: u32,
    /// Granularity of timestamps in milliseconds: the kernel's tick (4 at HZ=250).
    pub timer_tick_ms: u32,
    /// Interval in milliseconds, 1 to 1000, at whose multiples a write moves mtime and ctime
    /// (`mtime_update`, coarse-mtime paper section 4); `None` is every tick.
    pub mtime_update_ms: Option<u32>,
    /// What corruption does to the mount.
    pub errors: OnError,
    /// Whether the caller may use the root-reserved blocks.
    pub privileged: bool,
    /// The caller knows who writes and takes set-id bits away itself; else a write does where
    /// `privileged` is not set.
    pub set_id_by_caller: bool,
    /// Freed blocks are discarded after the commit that frees them.
    pub discard: bool,
    /// Replacement policy of the page cache (`policy=`).
    pub policy: String,
    /// Order of write-back (`writeback=`).
    pub writeback: Writeback,
    /// Where blocks go (`alloc=`).
    pub alloc: Alloc,
    /// Regions kept for files that are updated often, at most one a flex group (`hot_zones=`), 0
    /// with [`Alloc::Default`] (hot-zones paper, section 2). [`Alloc::Lifetime`] joins them to one.
    pub hot_zones: u32,
    /// Size of each in bytes (`hot_zone_size=`).
    pub hot_zone_size_bytes: u64,
    /// File names that are hot beside those that are known (`hot=GLOB`, repeatable).
    pub hot: Vec<String>,
    /// Delayed data of a file that is renamed over another, or that was cut to nothing and written
    /// again, is not left to the periodic write-back (`noauto_da_alloc` turns it off).
    pub auto_da_alloc: bool,
    /// Names of files that need not survive a power cut (`relaxed=GLOB`, repeatable): fsync of them
    /// returns at once, and their data may stay in a write buffer (informed-storage paper, 6.6).
    pub relaxed: Vec<String>,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            sync: SyncMode::Eager,
            log: LogFormat::Jbd2,
            eager_threshold: 100,
            atime: Atime::Relatime,
            lazytime: false,
            commit_s: 5,
            cache_bytes: 256 << 20,
            dirty_expire_centisecs: 3000,
            dirty_writeback_centisecs: 500,
            dirty_background_ratio: 10,
            dirty_ratio: 20,
            timer_tick_ms: 4,
            mtime_update_ms: None,
            errors: OnError::RemountRo,
            privileged: true,
            set_id_by_caller: false,
            discard: false,
            policy: "clock".into(),
            writeback: Writeback::File,
            alloc: Alloc::Default,
            hot_zones: 0,
            hot_zone_size_bytes: 64 << 20,
            hot: Vec::new(),
            auto_da_alloc: true,
            relaxed: Vec::new(),
        }
    }
}

/// Every option name, for the nearest-match message.
const NAMES: &[&str] = &[
    "ro",
    "rw",
    "sync",
    "log",
    "eager_threshold",
    "noatime",
    "relatime",
    "strictatime",
    "lazytime",
    "nolazytime",
    "commit",
    "cache",
    "dirty_expire_centisecs",
    "dirty_writeback_centisecs",
    "dirty_background_ratio",
    "dirty_ratio",
    "timer_tick_ms",
    "mtime_update",
    "un_mtime_update",
    "errors",
    "discard",
    "nodiscard",
    "policy",
    "writeback",
    "alloc",
    "hot_zones",
    "hot_zone_size",
    "hot",
    "auto_da_alloc",
    "noauto_da_alloc",
    "relaxed",
    "data",
    "writeback_preset",
];

impl MountOptions {
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
        let name = item.split_once('=').map_or(item, |(name, _)| name);
        if NAMES.contains(&name) { self.apply(item) } else { Err(unknown(item, name, others)) }
    }

    /// Applies one `name` or `name=value`.
    ///
    /// # Errors
    /// As [`MountOptions::parse`].
    pub fn apply(&mut self, item: &str) -> Result<()> {
        let (name, value) = match item.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (item, None),
        };
        match (name, value) {
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("noatime", None) => self.atime = Atime::Noatime,
            ("relatime", None) => self.atime = Atime::Relatime,
            ("strictatime", None) => self.atime = Atime::Strictatime,
            ("lazytime", None) => self.lazytime = true,
            ("nolazytime", None) => self.lazytime = false,
            ("mtime_update", None) => self.mtime_update_ms = Some(100),
            ("mtime_update", Some(value)) => {
                self.mtime_update_ms = Some(number(item, value, 1, 1000)?);
            }
            ("un_mtime_update", None) => self.mtime_update_ms = None,
            ("discard", None) => self.discard = true,
            ("nodiscard", None) => self.discard = false,
            ("auto_da_alloc", None) => self.auto_da_alloc = true,
            ("noauto_da_alloc", None) => self.auto_da_alloc = false,
            ("sync", Some("ordered")) | ("data", Some("ordered")) => self.sync = SyncMode::Ordered,
            ("sync", Some("eager")) => self.sync = SyncMode::Eager,
            ("log", Some("jbd2")) => self.log = LogFormat::Jbd2,
            ("log", Some("packed")) => self.log = LogFormat::Packed,
            ("errors", Some("remount-ro")) => self.errors = OnError::RemountRo,
            ("errors", Some("continue")) => self.errors = OnError::Continue,
            ("writeback_preset", Some("linux")) => self.set_writeback(3000, 10),
            ("writeback_preset", Some("android")) => self.set_writeback(200, 5),
            ("policy", Some(value)) => self.policy = value.to_owned(),
            ("writeback", Some("file")) => self.writeback = Writeback::File,
            ("writeback", Some("policy")) => self.writeback = Writeback::Policy,
            ("alloc", Some(value)) => self.set_alloc(item, value)?,
            ("hot_zones", Some(value)) => {
                self.hot_zones = number(item, value, 0, 4096)?;
                self.alloc = match (self.alloc, self.hot_zones) {
                    (_, 0) => Alloc::Default,
                    (Alloc::Default, _) => Alloc::HotZones,
                    (chosen, _) => chosen,
                };
            }
            ("hot_zone_size", Some(value)) => self.hot_zone_size_bytes = size(item, value)?,
            ("hot", Some(value)) => {
                crate::hot::check_glob("hot", value)?;
                self.hot.push(value.to_owned());
            }
            ("relaxed", Some(value)) => {
                crate::hot::check_glob("relaxed", value)?;
                self.relaxed.push(value.to_owned());
            }
            ("cache", Some(value)) => self.cache_bytes = size(item, value)?,
            ("commit", Some(value)) => self.commit_s = number(item, value, 1, 900)?,
            (name, Some(value)) => return self.apply_tunable(item, name, value),
            _ => return Err(unknown(item, name, &[])),
        }
        Ok(())
    }

    fn apply_tunable(&mut self, item: &str, name: &str, value: &str) -> Result<()> {
        let (field, low, high) = match name {
            "dirty_expire_centisecs" => (&mut self.dirty_expire_centisecs, 1, 360_000),
            "dirty_writeback_centisecs" => (&mut self.dirty_writeback_centisecs, 1, 360_000),
            "dirty_background_ratio" => (&mut self.dirty_background_ratio, 0, 100),
            "dirty_ratio" => (&mut self.dirty_ratio, 1, 100),
            "timer_tick_ms" => (&mut self.timer_tick_ms, 1, 1000),
            "eager_threshold" => (&mut self.eager_threshold, 0, 100_000),
            _ => return Err(unknown(item, name, &[])),
        };
        *field = number(item, value, low, high)?;
        Ok(())
    }

    fn set_alloc(&mut self, item: &str, value: &str) -> Result<()> {
        let found = Alloc::ALL.into_iter().find(|alloc| alloc.name() == value);
        self.alloc = found.ok_or_else(|| {
            let names = Alloc::ALL.map(Alloc::name).join(", ");
            FsError::invalid(format!("mount option `{item}`: give one of {names}"))
        })?;
        self.hot_zones = match self.alloc {
            Alloc::Default => 0,
            _ if self.hot_zones == 0 => HOT_ZONES,
            _ => self.hot_zones,
        };
        Ok(())
    }

    fn set_writeback(&mut self, expire_centisecs: u32, background_ratio: u32) {
        self.dirty_expire_centisecs = expire_centisecs;
        self.dirty_background_ratio = background_ratio;
    }
}

fn unknown(item: &str, name: &str, others: &[&str]) -> FsError {
    if NAMES.contains(&name) {
        return FsError::invalid(format!("mount option `{item}`: bad or missing value"));
    }
    let near =
        NAMES.iter().chain(others).min_by_key(|known| distance(name, known)).unwrap_or(&"ro");
    FsError::invalid(format!("unknown mount option `{item}`; the nearest is `{near}`"))
}

fn number(item: &str, value: &str, low: u32, high: u32) -> Result<u32> {
    match value.parse::<u32>() {
        Ok(n) if (low..=high).contains(&n) => Ok(n),
        _ => Err(FsError::invalid(format!("mount option `{item}`: give {low} to {high}"))),
    }
}

fn size(item: &str, value: &str) -> Result<u64> {
    let (digits, shift) = match value.char_indices().last() {
        Some((at, 'k' | 'K')) => (&value[..at], 10),
        Some((at, 'm' | 'M')) => (&value[..at], 20),
        Some((at, 'g' | 'G')) => (&value[..at], 30),
        _ => (value, 0),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1u64 << shift));
    match bytes {
        Some(bytes) if bytes >= 1 << 20 => Ok(bytes),
        _ => Err(FsError::invalid(format!("mount option `{item}`: give a size from 1M, as 256M"))),
    }
}

/// Levenshtein distance, for "did you mean".
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_linux_names() {
        let o = MountOptions::parse("ro,noatime,commit=30,cache=64M,dirty_ratio=40").unwrap();
        assert!(o.read_only);
        assert_eq!((o.atime, o.commit_s, o.cache_bytes), (Atime::Noatime, 30, 64 << 20));
        assert_eq!(o.dirty_ratio, 40);
        assert!(o.auto_da_alloc && !MountOptions::parse("noauto_da_alloc").unwrap().auto_da_alloc);
        assert_eq!(MountOptions::parse("").unwrap(), MountOptions::default());
    }

    #[test]
    fn refuses_with_the_nearest_name() {
        let err = MountOptions::parse("noatmie").unwrap_err().to_string();
        assert!(err.contains("`noatime`"), "{err}");
        assert!(MountOptions::parse("commit=0").is_err());
        assert!(MountOptions::parse("commit").is_err());
        assert!(MountOptions::parse("cache=4").is_err());
    }

    #[test]
    fn the_mtime_interval_is_1_to_1000_ms() {
        let parse = |list: &str| MountOptions::parse(list).map(|o| o.mtime_update_ms);
        assert_eq!(parse("mtime_update"), Ok(Some(100)));
        assert_eq!(parse("mtime_update=1"), Ok(Some(1)));
        assert_eq!(parse("mtime_update=1000,un_mtime_update"), Ok(None));
        for bad in ["mtime_update=0", "mtime_update=1001", "mtime_update=", "un_mtime_update=1"] {
            assert!(matches!(parse(bad), Err(FsError::Invalid(_))), "{bad}");
        }
    }

    #[test]
    fn zones_and_policies_go_together() {
        let parse = |list: &str| MountOptions::parse(list).map(|o| (o.alloc, o.hot_zones));
        assert_eq!(parse(""), Ok((Alloc::Default, 0)));
        assert_eq!(parse("hot_zones=2"), Ok((Alloc::HotZones, 2)));
        assert_eq!(parse("alloc=hot_zones"), Ok((Alloc::HotZones, 4)));
        assert_eq!(parse("alloc=lifetime"), Ok((Alloc::Lifetime, 4)));
        assert_eq!(parse("alloc=lifetime,hot_zones=1"), Ok((Alloc::Lifetime, 1)));
        assert_eq!(parse("hot_zones=1,alloc=lifetime"), Ok((Alloc::Lifetime, 1)));
        assert_eq!(parse("hot_zones=1,alloc=default"), Ok((Alloc::Default, 0)));
        assert_eq!(parse("alloc=lifetime,hot_zones=0"), Ok((Alloc::Default, 0)));
        let err = parse("alloc=linux").unwrap_err().to_string();
        assert!(err.contains("default, hot_zones, lifetime"), "{err}");
    }

    #[test]
    fn presets_set_both_values() {
        let o = MountOptions::parse("writeback_preset=android").unwrap();
        assert_eq!((o.dirty_expire_centisecs, o.dirty_background_ratio), (200, 5));
    }
}
