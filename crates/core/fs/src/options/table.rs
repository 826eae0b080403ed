//! The mount options of a volume, one row each.
//!
//! A new option is a field of [`MountOptions`] with its default, and a row here.

use syncline_cache::CacheError;

use super::spec::{Form, OptionSpec, size_text};
use super::{
    Alloc, Atime, LogFormat, MountOptions, MtimeUpdate, OnError, Rescue, SyncMode, Writeback,
    check_glob,
};
use crate::error::FsError;

type Row = OptionSpec<MountOptions>;

/// Longest age or interval of write-back, in hundredths of a second: an hour.
pub(super) const CENTISECS_MAX: u32 = 360_000;

/// A share of the cache.
const fn percent(low: u32, set: fn(&mut MountOptions, u32)) -> Form<MountOptions> {
    Form::Number { low, high: 100, unit: "PERCENT", set }
}

/// A word, and whether it holds.
const fn word(
    name: &'static str,
    help: &'static str,
    set: fn(&mut MountOptions),
    show: fn(&MountOptions) -> Option<String>,
) -> Row {
    Row { name, form: Form::Flag(set), help, live: false, show }
}

/// An option with a value that is fixed at mount.
const fn value(
    name: &'static str,
    form: Form<MountOptions>,
    help: &'static str,
    show: fn(&MountOptions) -> Option<String>,
) -> Row {
    Row { name, form, help, live: false, show }
}

/// An option with a value that may change while mounted.
const fn live(
    name: &'static str,
    form: Form<MountOptions>,
    help: &'static str,
    show: fn(&MountOptions) -> Option<String>,
) -> Row {
    Row { name, form, help, live: true, show }
}

/// `on` where a flag is on.
fn on(is_on: bool) -> Option<String> {
    is_on.then(|| "on".to_owned())
}

/// Every mount option of a volume.
pub const VOLUME_OPTIONS: &[Row] = &[
    word(
        "ro",
        "The volume is read-only. A log that has to be replayed is replayed in memory; `mount` \
         replays it on the image if the image is writable, as ext4 does, and with `noload` in \
         memory.",
        |o| o.read_only = true,
        |o| on(o.read_only),
    ),
    word("rw", "The volume can be written to.", |o| o.read_only = false, |o| on(!o.read_only)),
    word(
        "rescue",
        "Read a damaged volume as far as possible. Checksums and directory indexes are ignored, \
         backups take the place of a bad superblock or descriptor, and the log is replayed in \
         memory if it is whole. Other damage costs only the files that it hits. Implies `ro`; \
         nothing is written to the image.",
        |o| o.set_rescue(Rescue::Named),
        |o| on(o.rescue == Some(Rescue::Named)),
    ),
    word(
        "undelete",
        "As `rescue`. In addition the directory `/.rescue` has the inodes that no directory names, \
         the deleted files whose inode is in the journal and whose blocks are unused, and files \
         without an inode (`extents-#BLOCK`), if nodes of their extent trees are left. The mount \
         reads all inodes and directories first.",
        |o| o.set_rescue(Rescue::All),
        |o| on(o.rescue == Some(Rescue::All)),
    ),
    value(
        "sync",
        Form::Choice(&[
            ("eager", |o| o.sync = SyncMode::Eager),
            ("ordered", |o| o.sync = SyncMode::Ordered),
            ("periodic", |o| o.sync = SyncMode::Periodic),
        ]),
        "eager: fsync writes the file's data and its part of the metadata to the journal, as a \
         rule with one write that FUA or a flush makes durable. ordered: as in the kernel's ext4, \
         data is written in place before the metadata that points to it commits. periodic: fsync \
         returns at once, and every `commit=` seconds a sync point makes the whole volume durable. \
         A crash brings the volume back to the last durable sync point.",
        |o| Some(o.sync.name().to_owned()),
    ),
    value(
        "data",
        Form::Choice(&[("ordered", |o| o.sync = SyncMode::Ordered)]),
        "The kernel's name for sync=ordered.",
        |_| None,
    ),
    value(
        "log",
        Form::Choice(&[
            ("jbd2", |o| o.log = LogFormat::Jbd2),
            ("packed", |o| o.log = LogFormat::Packed),
        ]),
        "Format of the journal's transactions. jbd2: they hold blocks, and stock tools recover \
         them. packed: they hold only the changed bytes. Other programs refuse the image while it \
         is mounted, and after a crash until Syncline has recovered it. packed needs `sync=eager` \
         or `sync=periodic`.",
        |o| {
            Some(match o.log {
                LogFormat::Jbd2 => "jbd2".to_owned(),
                LogFormat::Packed => "packed".to_owned(),
            })
        },
    ),
    value(
        "log_unit",
        Form::Choice(&[
            ("4096", |o| o.log_unit_bytes = 4096),
            ("8192", |o| o.log_unit_bytes = 8192),
            ("16384", |o| o.log_unit_bytes = 16384),
            ("32768", |o| o.log_unit_bytes = 32768),
            ("65536", |o| o.log_unit_bytes = 65536),
        ]),
        "Packed records are padded to a multiple of this many bytes. On flash with larger pages \
         use the page size, which `syncline-lab probe --fit` finds: a record that fills a page is \
         programmed without waiting for the flush. Smaller units are refused, because a power cut \
         during the programming of a record may destroy an earlier record in the same 4096 bytes.",
        |o| Some(o.log_unit_bytes.to_string()),
    ),
    value(
        "eager_threshold",
        Form::Number {
            low: 0,
            high: 100_000,
            unit: "PAGES",
            set: |o, number| o.eager_threshold = Some(number),
        },
        "Eager fsync writes more changed pages than this in place. The default is measured: \
         scattered pages go in place if that costs the device less than the copy in the log and \
         the later write-back. `syncline status` shows the measured costs.",
        |o| o.eager_threshold.map(|pages| pages.to_string()),
    ),
    value(
        "eager_stream",
        Form::Size {
            low: 4 << 10,
            high: 64 << 20,
            set: |o, bytes| o.eager_stream_bytes = Some(bytes),
        },
        "Eager fsync writes new extents of at least SIZE in place. The default is measured.",
        |o| o.eager_stream_bytes.map(size_text),
    ),
    value(
        "eager_run",
        Form::Size {
            low: 4 << 10,
            high: 64 << 20,
            set: |o, bytes| o.eager_run_bytes = Some(bytes),
        },
        "Eager fsync writes overwritten extents of at least SIZE in place. The default is \
         measured.",
        |o| o.eager_run_bytes.map(size_text),
    ),
    value(
        "commit",
        Form::Number { low: 1, high: 900, unit: "SECONDS", set: |o, number| o.commit_s = number },
        "Interval of journal commits, or with `sync=periodic` of sync points.",
        |o| Some(o.commit_s.to_string()),
    ),
    word(
        "noatime",
        "Reads do not update access times.",
        |o| o.atime = Atime::Noatime,
        |o| on(o.atime == Atime::Noatime),
    ),
    word(
        "relatime",
        "A read updates an access time that is not newer than mtime and ctime, or older than \
         a day.",
        |o| o.atime = Atime::Relatime,
        |o| on(o.atime == Atime::Relatime),
    ),
    word(
        "strictatime",
        "Every read updates the access time.",
        |o| o.atime = Atime::Strictatime,
        |o| on(o.atime == Atime::Strictatime),
    ),
    word(
        "nodiratime",
        "Reading a directory does not update its access time.",
        |o| o.nodiratime = true,
        |o| on(o.nodiratime),
    ),
    word(
        "diratime",
        "Reading a directory updates its access time as other reads do.",
        |o| o.nodiratime = false,
        |o| on(!o.nodiratime),
    ),
    word(
        "lazytime",
        "Timestamps alone reach the disk at fsync, eviction, sync and unmount.",
        |o| o.lazytime = true,
        |o| on(o.lazytime),
    ),
    word(
        "nolazytime",
        "Timestamps reach the disk at commits.",
        |o| o.lazytime = false,
        |o| on(!o.lazytime),
    ),
    value(
        "cache",
        Form::Size { low: 1 << 20, high: u64::MAX, set: |o, bytes| o.cache_bytes = bytes },
        "Limit of the memory for cached pages, inodes, names and metadata.",
        |o| Some(size_text(o.cache_bytes)),
    ),
    value(
        "cache_reserve",
        Form::Size { low: 4 << 10, high: u64::MAX, set: |o, bytes| o.cache_reserve_bytes = bytes },
        "Part of `cache=` that is allocated at mount for pages of files. Until it is used up, no \
         write waits for the system to allocate memory. For periodic recorders.",
        |o| (o.cache_reserve_bytes > 0).then(|| size_text(o.cache_reserve_bytes)),
    ),
    value(
        "policy",
        Form::Text {
            word: "NAME",
            set: |o, name| {
                o.policy =
                    name.parse().map_err(|err: CacheError| FsError::invalid(err.to_string()))?;
                Ok(())
            },
        },
        "Page replacement: clock, lru, 2q, arc, s3-fifo, sieve, linux2q, mglru, cflru, lru-wsr, \
         for, fab, spatialclock, spatial-protected, blockclock.",
        |o| Some(o.policy.name().to_owned()),
    ),
    value(
        "writeback",
        Form::Choice(&[
            ("file", |o| o.writeback = Some(Writeback::File)),
            ("policy", |o| o.writeback = Some(Writeback::Policy)),
            ("space", |o| o.writeback = Some(Writeback::Space)),
        ]),
        "Dirty pages that are written first when too many pages are dirty. file: whole files, the \
         oldest first. policy: the pages that `policy=` would evict first. space: full blocks, \
         then dirty pages in file-offset order, CLOCK-style. The default is space if `cache=` is \
         below 256M and `sync=` is not ordered, else file.",
        |o| o.writeback.map(|order| order.name().to_owned()),
    ),
    live(
        "dirty_expire_centisecs",
        Form::Number {
            low: 1,
            high: CENTISECS_MAX,
            unit: "CENTISECS",
            set: |o, number| o.dirty_expire_centisecs = number,
        },
        "Age at which dirty data and committed metadata are written in place.",
        |o| Some(o.dirty_expire_centisecs.to_string()),
    ),
    value(
        "dirty_writeback_centisecs",
        Form::Number {
            low: 1,
            high: CENTISECS_MAX,
            unit: "CENTISECS",
            set: |o, number| o.dirty_writeback_centisecs = number,
        },
        "Interval of the periodic write-back.",
        |o| Some(o.dirty_writeback_centisecs.to_string()),
    ),
    live(
        "dirty_background_ratio",
        percent(0, |o, ratio| o.dirty_background_ratio = Some(ratio)),
        "Share of `cache=` above which background write-back starts. The default is 10; with \
         `writeback=space` and a cache below 256 MiB it is 10 % of 256 MiB, at most 50.",
        |o| o.dirty_background_ratio.map(|ratio| ratio.to_string()),
    ),
    live(
        "dirty_ratio",
        percent(1, |o, ratio| o.dirty_ratio = Some(ratio)),
        "Share of `cache=` above which a writer writes back itself. The default is 20; with \
         `writeback=space` and a cache below 256 MiB it is 20 % of 256 MiB, at most 75.",
        |o| o.dirty_ratio.map(|ratio| ratio.to_string()),
    ),
    value(
        "writeback_preset",
        Form::Choice(&[
            ("linux", |o| o.set_writeback(3000, None)),
            ("android", |o| o.set_writeback(200, Some(5))),
        ]),
        "android: dirty_expire_centisecs=200 and dirty_background_ratio=5. linux: the \
         defaults.",
        |_| None,
    ),
    value(
        "timer_tick_ms",
        Form::Number { low: 1, high: 1000, unit: "MS", set: |o, number| o.timer_tick_ms = number },
        "Granularity of timestamps: the kernel's tick.",
        |o| Some(o.timer_tick_ms.to_string()),
    ),
    value(
        "mtime_update",
        Form::OptionalNumber {
            low: 1,
            high: 1000,
            unit: "MS",
            alone: 100,
            set: |o, ms| o.mtime_update = MtimeUpdate::Interval(ms),
            words: &[("seen", |o| o.mtime_update = MtimeUpdate::Seen)],
        },
        "MS: a write, and a change of a directory's names, updates mtime and ctime only at \
         multiples of MS milliseconds. MS is 100 without a number, and not below the tick. \
         utimensat stays exact. A program that rereads a directory only if its mtime changed may \
         miss names that were added within MS. With relatime a read does not update atime if the \
         write before it did not update mtime. seen: programs see the times of Linux 6.13. fsync \
         makes the new time of a change durable if a program saw the old time, or if the durable \
         time is more than 100 ms old. After a crash a time may be up to 100 ms older than the \
         change, but no program saw this time with other contents.",
        |o| match o.mtime_update {
            MtimeUpdate::Tick => None,
            MtimeUpdate::Interval(ms) => Some(ms.to_string()),
            MtimeUpdate::Seen => Some("seen".to_owned()),
        },
    ),
    word(
        "un_mtime_update",
        "A write updates mtime and ctime at every tick.",
        |o| o.mtime_update = MtimeUpdate::Tick,
        |o| on(o.mtime_update == MtimeUpdate::Tick),
    ),
    word(
        "auto_da_alloc",
        "Replace-via-rename and replace-via-truncate allocate and write the delayed blocks of \
         the new contents at once, as ext4(5) describes.",
        |o| o.auto_da_alloc = true,
        |o| on(o.auto_da_alloc),
    ),
    word(
        "noauto_da_alloc",
        "Delayed blocks of contents that replace others wait for write-back.",
        |o| o.auto_da_alloc = false,
        |o| on(!o.auto_da_alloc),
    ),
    value(
        "errors",
        Form::Choice(&[
            ("remount-ro", |o| o.errors = OnError::RemountRo),
            ("continue", |o| o.errors = OnError::Continue),
        ]),
        "Reaction to corruption: the volume becomes read-only, or only the operation fails.",
        |o| {
            Some(match o.errors {
                OnError::RemountRo => "remount-ro".to_owned(),
                OnError::Continue => "continue".to_owned(),
            })
        },
    ),
    value(
        "alloc",
        Form::Choice(&[
            ("default", |o| o.set_alloc(Alloc::Default)),
            ("hot_zones", |o| o.set_alloc(Alloc::HotZones)),
            ("lifetime", |o| o.set_alloc(Alloc::Lifetime)),
        ]),
        "default: ext4's goals for blocks and inodes. hot_zones: each of the first `hot_zones=` \
         flex groups has a zone behind its metadata, which is kept for files that are updated \
         often. Inodes and blocks of such files fill one zone before the next. Other files use the \
         end of a zone if no other block is free, or if all other free runs are below 16 blocks. \
         lifetime: there is one zone, with short-lived files at its front. Other files get the \
         lowest free blocks, so that a device without discard keeps addresses that were never \
         written. No on-disk format change.",
        |o| Some(o.alloc.name().to_owned()),
    ),
    value(
        "hot_zones",
        Form::Number { low: 0, high: 4096, unit: "N", set: |o, number| o.set_hot_zones(number) },
        "Number of zones, at most one per flex group. The option implies `alloc=hot_zones`, and 0 \
         implies `alloc=default`. With `alloc=hot_zones` the default is four zones, or more if \
         each of four would fill over half of its flex group.",
        |o| (o.hot_zones > 0).then(|| o.hot_zones.to_string()),
    ),
    value(
        "hot_zone_size",
        Form::Size { low: 1 << 20, high: u64::MAX, set: |o, bytes| o.hot_zone_size_bytes = bytes },
        "Size of each zone. All zones together take at most an eighth of the volume, which is the \
         default, and each at most half of its flex group.",
        |o| (o.hot_zone_size_bytes > 0).then(|| size_text(o.hot_zone_size_bytes)),
    ),
    value(
        "hot",
        Form::Text {
            word: "GLOB",
            set: |o, rule| {
                check_glob("hot", rule)?;
                o.hot.push(rule.to_owned());
                Ok(())
            },
        },
        "Names of files that belong into zones. Three other kinds of files always do: databases \
         and their logs (SQLite, LevelDB, RocksDB and InnoDB by name, SQLite also by content), \
         files that overwrite their blocks often, and files with an extension whose files mostly \
         live for less than a minute. The last two kinds are learned, and forgotten at unmount. \
         Repeatable.",
        |_| None,
    ),
    value(
        "relaxed",
        Form::Text {
            word: "GLOB",
            set: |o, rule| {
                check_glob("relaxed", rule)?;
                o.relaxed.push(rule.to_owned());
                Ok(())
            },
        },
        "Names of files whose fsync returns at once. With `sync=ordered` a write buffer may also \
         defer their overwrites. A power cut loses up to a minute of their changes. The attribute \
         `user.syncline.durability` of a file, `relaxed` or `strict`, takes precedence, and new \
         files inherit it from their directory. Repeatable.",
        |_| None,
    ),
    value(
        "strict",
        Form::Text {
            word: "GLOB",
            set: |o, rule| {
                check_glob("strict", rule)?;
                o.strict.push(rule.to_owned());
                Ok(())
            },
        },
        "Names of files whose fsync forces a sync point, with `sync=periodic`. The attribute \
         `user.syncline.durability` of a file, `relaxed` or `strict`, takes precedence, and new \
         files inherit it from their directory. Repeatable.",
        |_| None,
    ),
    word(
        "discard",
        "Freed blocks are discarded after the commit that frees them.",
        |o| o.discard = true,
        |o| on(o.discard),
    ),
    word("nodiscard", "Freed blocks are not discarded.", |o| o.discard = false, |o| on(!o.discard)),
];
