//! Ages a volume before a workload is measured on it: weeks of a phone's use in a minute.
//!
//! ```text
//!   fill    events until the volume has the requested fill level
//!   churn   events that overwrite as much as the volume's size; above the fill level, old caches
//!           and random photos, videos and packages are removed
//! ```
//!
//! An event is a transaction of an app (rollback journal made, pages of the database written over
//! or added, both synced, journal removed), settings replaced by rename, a cache file, a photo, a
//! video or a package update. This fragments free space and databases, and a device without discard
//! has seen every address that the allocator ever used, so each policy ages its own volume. Sizes
//! scale with the volume, so that small ones can be aged in tests. Repeats exactly from the seed.
//! Tested in `lab/tests/bench/aged.rs`.

use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;

use crate::bench::target::{Open, Target, TargetFile, VolumeTarget};
use crate::bench::workloads::{below, noise, random};
use crate::error::{LabError, Result};

/// Apps, each with a directory, a database and settings.
const APPS: u64 = 24;
/// Largest write call, in bytes.
const CALL_BYTES: u64 = 128 << 10;
/// Time from one event to the next, in nanoseconds: commits and write-back happen in between.
const PAUSE_NS: u64 = 2_000_000_000;
const PAGE_BYTES: u64 = 4096;
static ZEROES: [u8; CALL_BYTES as usize] = [0; CALL_BYTES as usize];
/// Databases grow to this many pages at most.
const DATABASE_PAGES_MAX: u64 = 256;
/// Events without a byte written that end the churn: the volume is too small for any file.
const IDLE_MAX: u32 = 1000;

/// Use of a volume before it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aging {
    /// Share of the blocks in use at the end, in per cent, 1 to 95.
    pub fill_percent: u32,
    /// Of everything random.
    pub seed: u64,
}

/// Kind of files that are removed when there is too much.
#[derive(Clone, Copy)]
enum Kind {
    Cache,
    Photo,
    Video,
}

struct Life<'a> {
    target: &'a VolumeTarget,
    rng: ChaCha8Rng,
    bytes: Vec<u8>,
    capacity_bytes: u64,
    serial: u64,
    written_bytes: u64,
    /// In blocks of files that are there; blocks that were freed wait for commits.
    live_bytes: u64,
    /// In use before the first event.
    base_bytes: u64,
    database_pages: Vec<u64>,
    package_bytes: Vec<u64>,
    caches: VecDeque<(String, u64)>,
    photos: VecDeque<(String, u64)>,
    videos: VecDeque<(String, u64)>,
}

impl Aging {
    /// Uses the volume of `target`.
    pub fn run(&self, target: &VolumeTarget) -> Result<()> {
        if !(1..=95).contains(&self.fill_percent) {
            let text = format!("a fill of {} % cannot be made; give 1 to 95", self.fill_percent);
            return Err(LabError::Usage(text));
        }
        let stat = target.fs().volume().statfs();
        let mut rng = random(self.seed ^ 0xa9ed);
        let bytes = noise(&mut rng, CALL_BYTES as usize);
        let mut life = Life {
            target,
            rng,
            bytes,
            capacity_bytes: stat.blocks * u64::from(stat.block_size),
            live_bytes: 0,
            base_bytes: stat.blocks.saturating_sub(stat.blocks_free) * u64::from(stat.block_size),
            package_bytes: vec![0; APPS as usize],
            serial: 0,
            written_bytes: 0,
            database_pages: vec![0; APPS as usize],
            caches: VecDeque::new(),
            photos: VecDeque::new(),
            videos: VecDeque::new(),
        };
        life.begin()?;
        let (mut idle, mut before) = (0, 0);
        while life.used_percent() < self.fill_percent && idle < IDLE_MAX {
            life.event()?;
            idle = if life.written_bytes == before { idle + 1 } else { 0 };
            before = life.written_bytes;
        }
        let until = life.written_bytes + life.capacity_bytes;
        while life.written_bytes < until && idle < IDLE_MAX {
            life.event()?;
            while life.used_percent() >= self.fill_percent && life.remove_something()? {}
            idle = if life.written_bytes == before { idle + 1 } else { 0 };
            before = life.written_bytes;
        }
        target.sync_all()
    }
}

impl Life<'_> {
    fn begin(&mut self) -> Result<()> {
        for dir in ["/old", "/old/media", "/old/packages"] {
            self.target.mkdir(dir)?;
        }
        (0..APPS).try_for_each(|app| self.target.mkdir(&format!("/old-app{app:02}")))
    }

    fn used_percent(&self) -> u32 {
        ((self.base_bytes + self.live_bytes) * 100 / self.capacity_bytes.max(1)) as u32
    }

    /// `share` of the volume, in bytes, at most `most`, at least one page; and up to half more.
    fn size(&mut self, share: u64, most: u64) -> u64 {
        let size = (self.capacity_bytes / share).clamp(PAGE_BYTES, most);
        size + below(&mut self.rng, size / 2)
    }

    fn event(&mut self) -> Result<()> {
        let app = below(&mut self.rng, APPS);
        let done = match below(&mut self.rng, 100) {
            0..45 => self.transaction(app),
            45..55 => self.settings(app),
            55..80 => self.cache(app),
            80..94 => {
                let len = self.size(1024, 2 << 20);
                self.media(Kind::Photo, len)
            }
            94..96 => {
                let len = self.size(64, 24 << 20);
                self.media(Kind::Video, len)
            }
            _ => self.package(app),
        };
        let clock = self.target.fs().clock();
        clock.sleep_until(clock.now_ns() + PAUSE_NS);
        match done {
            // The volume is full for this one: the next round removes something.
            Err(LabError::NoSpace(_)) => self.remove_something().map(drop),
            done => done,
        }
    }

    /// Zeroes cost the simulation no memory, and no device here looks at what it stores.
    fn fill(&mut self, file: &mut dyn TargetFile, len: u64) -> Result<()> {
        let mut at = 0;
        while at < len {
            let n = (len - at).min(CALL_BYTES);
            file.write_at(at, &ZEROES[..n as usize])?;
            at += n;
            self.written_bytes += n;
        }
        Ok(())
    }

    fn name(&mut self, dir: &str, ending: &str) -> String {
        self.serial += 1;
        format!("{dir}/{:07}{ending}", self.serial)
    }

    /// A transaction of SQLite in DELETE mode, by its calls.
    fn transaction(&mut self, app: u64) -> Result<()> {
        let (target, path) = (self.target, format!("/old-app{app:02}/app.db"));
        let pages = self.database_pages[app as usize];
        let how = if pages == 0 { Open::New } else { Open::Existing };
        let mut db = target.open(&path, how)?;
        let changed = 1 + below(&mut self.rng, 4);
        let journal = format!("{path}-journal");
        let mut log = target.open(&journal, Open::New)?;
        self.fill(&mut *log, (changed + 1) * PAGE_BYTES)?;
        log.sync(true)?;
        let page = self.bytes[..PAGE_BYTES as usize].to_vec();
        for _ in 0..changed {
            let at = below(&mut self.rng, (pages + 1).min(DATABASE_PAGES_MAX));
            db.write_at(at * PAGE_BYTES, &page)?;
            self.written_bytes += PAGE_BYTES;
            let grown = &mut self.database_pages[app as usize];
            if at >= *grown {
                *grown = at + 1;
                self.live_bytes += PAGE_BYTES;
            }
        }
        db.sync(true)?;
        drop(log);
        target.remove(&journal)
    }

    fn settings(&mut self, app: u64) -> Result<()> {
        let path = format!("/old-app{app:02}/settings.xml");
        let new = self.name(&format!("/old-app{app:02}"), ".tmp");
        let mut file = self.target.open(&new, Open::New)?;
        let len = PAGE_BYTES * (1 + below(&mut self.rng, 3));
        self.fill(&mut *file, len)?;
        file.sync(false)?;
        drop(file);
        self.target.rename(&new, &path)
    }

    fn cache(&mut self, app: u64) -> Result<()> {
        let path = self.name(&format!("/old-app{app:02}"), ".cache");
        let mut file = self.target.open(&path, Open::New)?;
        let len = PAGE_BYTES + below(&mut self.rng, 16 * PAGE_BYTES);
        self.add(Kind::Cache, path, len);
        self.fill(&mut *file, len)
    }

    fn media(&mut self, kind: Kind, len: u64) -> Result<()> {
        let path = self.name("/old/media", ".jpg");
        let mut file = self.target.open(&path, Open::New)?;
        self.add(kind, path, len);
        self.fill(&mut *file, len)?;
        file.sync(false)
    }

    fn package(&mut self, app: u64) -> Result<()> {
        let len = self.size(256, 6 << 20);
        let new = self.name("/old/packages", ".tmp");
        let mut file = self.target.open(&new, Open::New)?;
        let filled = self.fill(&mut *file, len).and_then(|()| file.sync(false));
        drop(file);
        if filled.is_err() {
            self.target.remove(&new)?;
            return filled;
        }
        let old = std::mem::replace(&mut self.package_bytes[app as usize], len);
        self.live_bytes = self.live_bytes + len - old;
        self.target.rename(&new, &format!("/old/packages/app{app:02}.apk"))
    }

    fn add(&mut self, kind: Kind, path: String, len: u64) {
        let len = len.next_multiple_of(PAGE_BYTES);
        self.live_bytes += len;
        self.list(kind).push_back((path, len));
    }

    fn list(&mut self, kind: Kind) -> &mut VecDeque<(String, u64)> {
        match kind {
            Kind::Cache => &mut self.caches,
            Kind::Photo => &mut self.photos,
            Kind::Video => &mut self.videos,
        }
    }

    /// Removes the oldest caches, or a photo or video of any age; false if there is nothing.
    fn remove_something(&mut self) -> Result<bool> {
        let (kind, count) = match below(&mut self.rng, 10) {
            0..3 => (Kind::Cache, 20),
            3..9 => (Kind::Photo, 1),
            _ => (Kind::Video, 1),
        };
        let others = [Kind::Photo, Kind::Video, Kind::Cache];
        let mut kinds = std::iter::once(kind).chain(others);
        let Some(kind) = kinds.find(|kind| !self.list(*kind).is_empty()) else { return Ok(false) };
        for _ in 0..count {
            let len = self.list(kind).len() as u64;
            let at = match kind {
                Kind::Cache => 0,
                Kind::Photo | Kind::Video => below(&mut self.rng, len) as usize,
            };
            let Some((path, len)) = self.list(kind).remove(at) else { break };
            self.live_bytes -= len;
            self.target.remove(&path)?;
        }
        Ok(true)
    }
}
