//! The mount options of a volume, one row each.
//!
//! A new option is a field of [`MountOptions`] with its default, and a row here.

use super::spec::{Given, Kind, OptionSpec, size_text};
use super::{Atime, LogFormat, MountOptions, OnError, SyncMode, Writeback, check_glob};
use crate::error::Result;

type Row = OptionSpec<MountOptions>;

/// Longest age or interval of write-back, in hundredths of a second: an hour.
pub(super) const CENTISECS_MAX: u32 = 360_000;

/// A share of the cache.
const fn percent(low: u32) -> Kind {
    Kind::Number { low, high: 100, unit: "PERCENT" }
}

const fn number(low: u32, high: u32, unit: &'static str) -> Kind {
    Kind::Number { low, high, unit }
}

/// A word that sets what another row shows.
const fn word(
    name: &'static str,
    help: &'static str,
    set: fn(&mut MountOptions, Given<'_>) -> Result<()>,
) -> Row {
    Row { name, kind: Kind::Flag, help, live: false, set, show: |_| None }
}

/// An option with a value that is fixed at mount.
const fn value(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    set: fn(&mut MountOptions, Given<'_>) -> Result<()>,
    show: fn(&MountOptions) -> Option<String>,
) -> Row {
    Row { name, kind, help, live: false, set, show }
}

/// An option with a value that may change while mounted.
const fn live(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    set: fn(&mut MountOptions, Given<'_>) -> Result<()>,
    show: fn(&MountOptions) -> Option<String>,
) -> Row {
    Row { name, kind, help, live: true, set, show }
}

/// Closure of the table that assigns and cannot fail.
macro_rules! set {
    (|$options:ident, $given:pat_param| $assignment:expr) => {
        |$options, $given| {
            $assignment;
            Ok(())
        }
    };
}

/// `yes` where a flag is on by default.
fn on(is_on: bool) -> Option<String> {
    is_on.then(|| "on".to_owned())
}

/// Every mount option of a volume.
pub const VOLUME_OPTIONS: &[Row] = &[
    word(
        "ro",
        "Nothing can be written. A log to replay is replayed in memory; a mount replays it on the \
         image where that can be written, as ext4 does, and with `noload` in memory.",
        set!(|o, _| o.read_only = true),
    ),
    Row {
        show: |o| on(!o.read_only),
        ..word("rw", "The volume can be written to.", set!(|o, _| o.read_only = false))
    },
    value(
        "sync",
        Kind::Choice(&["eager", "ordered", "periodic"]),
        "eager: fsync is one write and one flush, with the file's data and its part of the \
         metadata in the journal. ordered: as the kernel's ext4, data in place before the \
         metadata that points to it commits. periodic: fsync returns at once, and \
         every `commit=` seconds the whole volume becomes durable at one sync point; a crash \
         goes back to the last one.",
        set!(|o, given| o.sync = match given.text() {
            "ordered" => SyncMode::Ordered,
            "periodic" => SyncMode::Periodic,
            _ => SyncMode::Eager,
        }),
        |o| Some(o.sync.name().to_owned()),
    ),
    value(
        "data",
        Kind::Choice(&["ordered"]),
        "The kernel's name for sync=ordered.",
        set!(|o, _| o.sync = SyncMode::Ordered),
        |_| None,
    ),
    value(
        "log",
        Kind::Choice(&["jbd2", "packed"]),
        "Format of the journal's transactions. jbd2: blocks, which stock tools recover. \
         packed: the bytes that changed, with `sync=eager` or `sync=periodic`; until the unmount, \
         and after a crash until Syncline has recovered it, other programs refuse the image.",
        set!(|o, given| o.log = match given.text() {
            "packed" => LogFormat::Packed,
            _ => LogFormat::Jbd2,
        }),
        |o| {
            Some(match o.log {
                LogFormat::Jbd2 => "jbd2".to_owned(),
                LogFormat::Packed => "packed".to_owned(),
            })
        },
    ),
    value(
        "log_unit",
        Kind::Choice(&["4096", "8192", "16384", "32768", "65536"]),
        "Packed records are padded to a multiple of this many bytes. On flash with larger pages \
         give the page size, which `syncline probe --fit` finds: a record that fills a page is \
         programmed without waiting for the flush. Shorter is refused: a power cut while a record \
         is programmed may take one before it in the same 4096 bytes.",
        set!(|o, given| o.log_unit_bytes = given.text().parse().unwrap_or(4096)),
        |o| Some(o.log_unit_bytes.to_string()),
    ),
    value(
        "eager_threshold",
        number(0, 100_000, "PAGES"),
        "Changed pages above which an eager fsync writes them in place. Without it the mount \
         measures what the device takes for a flush, a byte and a run of addresses, and scattered \
         pages go in place where their copy in the log takes longer than a second flush and the \
         runs. `syncline status` shows the costs.",
        set!(|o, given| o.eager_threshold = Some(given.number())),
        |o| o.eager_threshold.map(|pages| pages.to_string()),
    ),
    value(
        "eager_stream",
        Kind::Size { low: 4 << 10, high: 64 << 20 },
        "New blocks of this size or more an eager fsync writes in place; measured without it.",
        set!(|o, given| o.eager_stream_bytes = Some(given.size())),
        |o| o.eager_stream_bytes.map(size_text),
    ),
    value(
        "eager_run",
        Kind::Size { low: 4 << 10, high: 64 << 20 },
        "Consecutive overwritten blocks of this size or more an eager fsync writes in place; \
         measured without it.",
        set!(|o, given| o.eager_run_bytes = Some(given.size())),
        |o| o.eager_run_bytes.map(size_text),
    ),
    value(
        "commit",
        number(1, 900, "SECONDS"),
        "Interval of journal commits.",
        set!(|o, given| o.commit_s = given.number()),
        |o| Some(o.commit_s.to_string()),
    ),
    word("noatime", "Reads leave access times alone.", set!(|o, _| o.atime = Atime::Noatime)),
    Row {
        show: |o| on(o.atime == Atime::Relatime),
        ..word(
            "relatime",
            "Reads move access times that are older than the other times, or than a day.",
            set!(|o, _| o.atime = Atime::Relatime),
        )
    },
    word("strictatime", "Reads move access times.", set!(|o, _| o.atime = Atime::Strictatime)),
    word(
        "nodiratime",
        "Reading a directory never moves its access time.",
        set!(|o, _| o.nodiratime = true),
    ),
    Row {
        show: |o| on(!o.nodiratime),
        ..word(
            "diratime",
            "Reading a directory moves its access time as other reads do.",
            set!(|o, _| o.nodiratime = false),
        )
    },
    word(
        "lazytime",
        "Timestamps alone reach the disk at fsync, eviction, sync and unmount.",
        set!(|o, _| o.lazytime = true),
    ),
    Row {
        show: |o| on(!o.lazytime),
        ..word(
            "nolazytime",
            "Timestamps reach the disk at commits.",
            set!(|o, _| o.lazytime = false),
        )
    },
    value(
        "cache",
        Kind::Size { low: 1 << 20, high: u64::MAX },
        "Limit of cached pages, inodes, names and metadata.",
        set!(|o, given| o.cache_bytes = given.size()),
        |o| Some(size_text(o.cache_bytes)),
    ),
    value(
        "cache_reserve",
        Kind::Size { low: 4 << 10, high: u64::MAX },
        "Memory for cached pages of files that is taken at mount, of `cache=`: until it is used up \
         no page of a write waits for the system to give memory. For periodic recorders.",
        set!(|o, given| o.cache_reserve_bytes = given.size()),
        |o| (o.cache_reserve_bytes > 0).then(|| size_text(o.cache_reserve_bytes)),
    ),
    value(
        "policy",
        Kind::Text("NAME"),
        "Page replacement: clock, lru, 2q, sieve, linux2q, cflru, lru-wsr, for, fab, \
         spatialclock, spatial-protected, blockclock.",
        set!(|o, given| given.text().clone_into(&mut o.policy)),
        |o| Some(o.policy.clone()),
    ),
    value(
        "writeback",
        Kind::Choice(&["file", "policy", "space"]),
        "Dirty pages that go first when they are too many. file: whole files, the oldest \
         first. policy: the pages that `policy=` would give up first. space: full blocks, then \
         pages that a hand meets on its way along the files. Without it space where `cache=` is \
         below 256M, else file; with `sync=ordered` file always, as in Linux.",
        set!(|o, given| o.writeback = Some(match given.text() {
            "policy" => Writeback::Policy,
            "space" => Writeback::Space,
            _ => Writeback::File,
        })),
        |o| o.writeback.map(|order| order.name().to_owned()),
    ),
    live(
        "dirty_expire_centisecs",
        number(1, CENTISECS_MAX, "CENTISECS"),
        "Age at which dirty data and committed metadata are written in place.",
        set!(|o, given| o.dirty_expire_centisecs = given.number()),
        |o| Some(o.dirty_expire_centisecs.to_string()),
    ),
    value(
        "dirty_writeback_centisecs",
        number(1, CENTISECS_MAX, "CENTISECS"),
        "Interval of the periodic write-back.",
        set!(|o, given| o.dirty_writeback_centisecs = given.number()),
        |o| Some(o.dirty_writeback_centisecs.to_string()),
    ),
    live(
        "dirty_background_ratio",
        percent(0),
        "Share of `cache=` above which write-back starts in the background. Without it 10; with \
         `writeback=space` 10 of 256 MiB where the cache is smaller, up to 50.",
        set!(|o, given| o.dirty_background_ratio = Some(given.number())),
        |o| o.dirty_background_ratio.map(|ratio| ratio.to_string()),
    ),
    live(
        "dirty_ratio",
        percent(1),
        "Share of `cache=` above which a writer writes back itself. Without it 20; with \
         `writeback=space` 20 of 256 MiB where the cache is smaller, up to 75.",
        set!(|o, given| o.dirty_ratio = Some(given.number())),
        |o| o.dirty_ratio.map(|ratio| ratio.to_string()),
    ),
    value(
        "writeback_preset",
        Kind::Choice(&["linux", "android"]),
        "android: dirty_expire_centisecs=200 and dirty_background_ratio=5. linux: the \
         defaults.",
        set!(|o, given| match given.text() {
            "android" => o.set_writeback(200, Some(5)),
            _ => o.set_writeback(3000, None),
        }),
        |_| None,
    ),
    value(
        "timer_tick_ms",
        number(1, 1000, "MS"),
        "Granularity of timestamps: the kernel's tick.",
        set!(|o, given| o.timer_tick_ms = given.number()),
        |o| Some(o.timer_tick_ms.to_string()),
    ),
    value(
        "mtime_update",
        Kind::OptionalNumber { low: 1, high: 1000, unit: "MS" },
        "A write, and in a directory a name that comes or goes, moves mtime and ctime at \
         multiples of MS only (100 where none is given, never finer than the tick); utimensat \
         stays exact. A program that knows by a directory's mtime whether to read it again \
         may miss names added within MS. With relatime a read does not move atime if the \
         write before it did not move mtime.",
        set!(|o, given| o.mtime_update_ms = Some(given.number_or(100))),
        |o| o.mtime_update_ms.map(|ms| ms.to_string()),
    ),
    Row {
        show: |o| on(o.mtime_update_ms.is_none()),
        ..word(
            "un_mtime_update",
            "A write moves mtime and ctime at every tick.",
            set!(|o, _| o.mtime_update_ms = None),
        )
    },
    Row {
        show: |o| on(o.auto_da_alloc),
        ..word(
            "auto_da_alloc",
            "Delayed data of a file that is renamed over another is written before the rename, of \
         a file that was cut to nothing and written again at its close.",
            set!(|o, _| o.auto_da_alloc = true),
        )
    },
    word(
        "noauto_da_alloc",
        "Delayed data waits for write-back.",
        set!(|o, _| o.auto_da_alloc = false),
    ),
    value(
        "errors",
        Kind::Choice(&["remount-ro", "continue"]),
        "Effect of corruption: the volume goes read-only, or the operation alone fails.",
        set!(|o, given| o.errors = match given.text() {
            "continue" => OnError::Continue,
            _ => OnError::RemountRo,
        }),
        |o| {
            Some(match o.errors {
                OnError::RemountRo => "remount-ro".to_owned(),
                OnError::Continue => "continue".to_owned(),
            })
        },
    ),
    value(
        "alloc",
        Kind::Choice(&["default", "hot_zones", "lifetime"]),
        "default: ext4's places for blocks and inodes. hot_zones: at the front of the first \
         `hot_zones=` flex groups, behind their metadata, blocks are kept for files that are \
         updated often; new ones go to one zone, inode and blocks, until it is full. Other \
         files borrow the ends of the zones when nothing else is free, or only in pieces \
         below 16 blocks. lifetime: one such region, its front for short-lived files; other \
         files as low as there is room, so that a device without discard keeps addresses that \
         it has never seen. Nothing on disk says so.",
        set!(|o, given| o.set_alloc(given.text())),
        |o| Some(o.alloc.name().to_owned()),
    ),
    value(
        "hot_zones",
        number(0, 4096, "N"),
        "Number of zones, at most one a flex group; alone it means `alloc=hot_zones`, and 0 \
         `alloc=default`. Where `alloc=` wants zones and nothing else is said: four, more where \
         each would take over half of its flex group.",
        set!(|o, given| o.set_hot_zones(given.number())),
        |o| (o.hot_zones > 0).then(|| o.hot_zones.to_string()),
    ),
    value(
        "hot_zone_size",
        Kind::Size { low: 1 << 20, high: u64::MAX },
        "Size of each zone; together at most an eighth of the volume, which is what they take \
         where nothing is said, a zone no more than half of its flex group.",
        set!(|o, given| o.hot_zone_size_bytes = given.size()),
        |o| (o.hot_zone_size_bytes > 0).then(|| size_text(o.hot_zone_size_bytes)),
    ),
    value(
        "hot",
        Kind::Text("GLOB"),
        "File names that belong into zones beside databases and their logs (SQLite, LevelDB, \
         RocksDB, InnoDB by name; SQLite by content), files that write over their blocks \
         again and again, and names whose ending mostly dies within a minute (both learned, \
         forgotten at unmount). Repeatable.",
        |o, given| {
            check_glob("hot", given.text())?;
            o.hot.push(given.text().to_owned());
            Ok(())
        },
        |_| None,
    ),
    value(
        "relaxed",
        Kind::Text("GLOB"),
        "File names whose fsync returns at once and whose overwrites may wait in a write \
         buffer: a power cut loses up to a minute of them. `user.syncline.durability` = \
         `relaxed` or `strict` on a file or, for new files, its directory goes before it. \
         Repeatable.",
        |o, given| {
            check_glob("relaxed", given.text())?;
            o.relaxed.push(given.text().to_owned());
            Ok(())
        },
        |_| None,
    ),
    value(
        "strict",
        Kind::Text("GLOB"),
        "With `sync=periodic`, names of files whose fsync makes the volume durable as it is then. \
         `user.syncline.durability` = `strict` on a file or, for new files, its directory does the \
         same, and `relaxed` the opposite. Repeatable.",
        |o, given| {
            check_glob("strict", given.text())?;
            o.strict.push(given.text().to_owned());
            Ok(())
        },
        |_| None,
    ),
    word(
        "discard",
        "Freed blocks are discarded after the commit that frees them.",
        set!(|o, _| o.discard = true),
    ),
    Row {
        show: |o| on(!o.discard),
        ..word("nodiscard", "Freed blocks are not discarded.", set!(|o, _| o.discard = false))
    },
];
