//! A day of a phone: many apps with a database each, and the other writes of the system.
//!
//! | of 100 events | |
//! |---|---|
//! | 60 | a row inserted into the database of one of 24 apps, half of them into those of four |
//! | 15 | settings of an app: 4 to 8 KiB under another name, fsync, renamed over the old ones |
//! | 13 | an unsynced cache file of 4 to 64 KiB; beyond 100 files the oldest is removed |
//! | 6 | 4 KiB appended to an unsynced log |
//! | 3 | a photo of 2 MiB, fsync; beyond 10 photos the oldest is removed |
//! | 2 | a package of 4 MiB, fsync, renamed over the old one |
//! | 1 | half of the cache files removed |
//!
//! The shape is that of the hot-zones paper (section 2: databases are written often, next to all
//! kinds of user files) and of package updates and media as Android does them.

use std::collections::VecDeque;

use crate::latency::Timer;
use rand_chacha::ChaCha8Rng;
use rusqlite::Connection;

use super::{Parameters, Workload, below, noise, not_open, random, sqlite};
use crate::bench::target::{Open, Target, TargetFile};
use crate::error::Result;

const APPS: u64 = 24;
const BUSY_APPS: u64 = 4;
const PACKAGES: u64 = 6;
const CACHES_MAX: usize = 100;
const PHOTOS_MAX: usize = 10;
const PHOTO_BYTES: u64 = 2 << 20;
const PACKAGE_BYTES: u64 = 4 << 20;
const CALL_BYTES: u64 = 128 << 10;
const PAGE_BYTES: u64 = 4096;

struct Day {
    parameters: Parameters,
    rng: ChaCha8Rng,
    bytes: Vec<u8>,
    caches: VecDeque<String>,
    photos: VecDeque<String>,
    log_bytes: u64,
    opened: Option<Opened>,
}

struct Opened {
    databases: Vec<Connection>,
    log: Box<dyn TargetFile>,
}

pub(super) fn workload(p: &Parameters, _: u64) -> Box<dyn Workload> {
    let mut rng = random(p.seed);
    let bytes = noise(&mut rng, CALL_BYTES as usize);
    Box::new(Day {
        parameters: p.clone(),
        rng,
        bytes,
        caches: VecDeque::new(),
        photos: VecDeque::new(),
        log_bytes: 0,
        opened: None,
    })
}

fn database(app: u64) -> String {
    format!("/app{app:02}/app.db")
}

impl Day {
    /// A new file of `len` bytes.
    fn make(&self, target: &dyn Target, path: &str, len: u64) -> Result<Box<dyn TargetFile>> {
        let mut file = target.open(path, Open::New)?;
        for at in (0..len).step_by(CALL_BYTES as usize) {
            let n = (len - at).min(CALL_BYTES) as usize;
            file.write_at(at, &self.bytes[..n])?;
        }
        Ok(file)
    }

    /// A file that takes the place of `path` when it is complete.
    fn replace(&self, target: &dyn Target, path: &str, len: u64, timer: &mut Timer) -> Result<()> {
        let new = format!("{path}.tmp");
        let mut file = self.make(target, &new, len)?;
        timer.time(|| target.now_ns(), || file.sync(false))?;
        drop(file);
        target.rename(&new, path)
    }

    fn transaction(&mut self, target: &dyn Target, step: u64, timer: &mut Timer) -> Result<()> {
        let busy = below(&mut self.rng, 2) == 0;
        let app = below(&mut self.rng, if busy { BUSY_APPS } else { APPS });
        let opened = self.opened.as_ref().ok_or_else(not_open)?;
        let (db, rng) = (&opened.databases[app as usize], &mut self.rng);
        timer.time(|| target.now_ns(), || sqlite::insert_row(db, rng, step as i64 + 1))
    }

    fn cache(&mut self, target: &dyn Target, step: u64) -> Result<()> {
        let path = format!("/app{:02}/{step:06}.cache", below(&mut self.rng, APPS));
        let len = PAGE_BYTES * (1 + below(&mut self.rng, 16));
        drop(self.make(target, &path, len)?);
        self.caches.push_back(path);
        drop_oldest(target, &mut self.caches, CACHES_MAX)
    }

    fn photo(&mut self, target: &dyn Target, step: u64, timer: &mut Timer) -> Result<()> {
        let path = format!("/photos/{step:06}.jpg");
        let mut file = self.make(target, &path, PHOTO_BYTES)?;
        timer.time(|| target.now_ns(), || file.sync(false))?;
        self.photos.push_back(path);
        drop_oldest(target, &mut self.photos, PHOTOS_MAX)
    }

    fn log(&mut self) -> Result<()> {
        let opened = self.opened.as_mut().ok_or_else(not_open)?;
        opened.log.write_at(self.log_bytes, &self.bytes[..PAGE_BYTES as usize])?;
        self.log_bytes += PAGE_BYTES;
        Ok(())
    }
}

fn drop_oldest(target: &dyn Target, files: &mut VecDeque<String>, most: usize) -> Result<()> {
    while files.len() > most
        && let Some(oldest) = files.pop_front()
    {
        target.remove(&oldest)?;
    }
    Ok(())
}

impl Workload for Day {
    fn prepare(&mut self, target: &dyn Target) -> Result<()> {
        for dir in ["/photos", "/packages"] {
            target.mkdir(dir)?;
        }
        for app in 0..APPS {
            target.mkdir(&format!("/app{app:02}"))?;
            sqlite::make_table_at(target, &database(app), &self.parameters)?;
        }
        Ok(())
    }

    fn open(&mut self, target: &dyn Target) -> Result<()> {
        let open = |app| sqlite::connect_to(target, &database(app), &self.parameters);
        let databases = (0..APPS).map(open).collect::<Result<_>>()?;
        let log = target.open("/system.log", Open::New)?;
        self.opened = Some(Opened { databases, log });
        Ok(())
    }

    fn step(&mut self, target: &dyn Target, step: u64, timer: &mut Timer) -> Result<()> {
        match below(&mut self.rng, 100) {
            0..60 => self.transaction(target, step, timer),
            60..75 => {
                let path = format!("/app{:02}/settings.xml", below(&mut self.rng, APPS));
                let len = PAGE_BYTES * (1 + below(&mut self.rng, 2));
                self.replace(target, &path, len, timer)
            }
            75..88 => self.cache(target, step),
            88..94 => self.log(),
            94..97 => self.photo(target, step, timer),
            97..99 => {
                let path = format!("/packages/{}.apk", below(&mut self.rng, PACKAGES));
                self.replace(target, &path, PACKAGE_BYTES, timer)
            }
            _ => drop_oldest(target, &mut self.caches, CACHES_MAX / 2),
        }
    }

    fn close(&mut self, _: &dyn Target) -> Result<()> {
        let opened = self.opened.take();
        opened.map_or(Ok(()), |opened| opened.databases.into_iter().try_for_each(sqlite::close))
    }
}
