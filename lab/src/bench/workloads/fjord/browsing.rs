//! A browser that visits one site after the other, one a step, without waiting.
//!
//! Shaped as Android 2.3's WebView (paper, 6.7.3 and chapter III): each object of a page becomes a
//! file of the web cache, which nobody syncs, and a row of the cache's index, a transaction; each
//! site writes history and cookies in two further databases.

use crate::latency::Timer;
use rand_chacha::ChaCha8Rng;
use rusqlite::{Connection, params};

use super::{length, prose, save};
use crate::bench::target::Target;
use crate::bench::workloads::{Parameters, Workload, below, noise, not_open, random, sqlite};
use crate::error::Result;

/// The databases and their tables.
const DATABASES: [(&str, &str); 3] = [
    (
        "/webviewCache.db",
        "CREATE TABLE cache(_id INTEGER PRIMARY KEY, url TEXT, filepath TEXT, mimetype TEXT,
         contentlength INTEGER, expires INTEGER); CREATE UNIQUE INDEX cacheUrlIndex ON cache(url);",
    ),
    (
        "/browser.db",
        "CREATE TABLE bookmarks(_id INTEGER PRIMARY KEY, title TEXT, url TEXT, visits INTEGER);",
    ),
    (
        "/webview.db",
        "CREATE TABLE cookies(_id INTEGER PRIMARY KEY, name TEXT, value TEXT, domain TEXT);
         CREATE INDEX cookiesIndex ON cookies(domain);",
    ),
];
/// Objects of a site: at least so many, and up to as many again.
const OBJECTS: u64 = 20;
/// Bytes of an object, at least and at most.
const OBJECT_BYTES: (u64, u64) = (512, 64 << 10);

struct Browsing {
    parameters: Parameters,
    rng: ChaCha8Rng,
    databases: Vec<Connection>,
}

pub(super) fn browsing(p: &Parameters, _: u64) -> Box<dyn Workload> {
    Box::new(Browsing { parameters: p.clone(), rng: random(p.seed), databases: Vec::new() })
}

impl Browsing {
    fn site(&mut self, target: &dyn Target, site: i64) -> Result<()> {
        let [cache, history, cookies] = self.databases.as_slice() else { return Err(not_open()) };
        let rng = &mut self.rng;
        let url = format!("http://www.{}.example/", prose(rng, 12).replace(' ', "-"));
        history
            .prepare_cached("INSERT INTO bookmarks VALUES(?,'',?,1)")?
            .execute(params![site, url])?;
        for object in 0..OBJECTS + below(rng, OBJECTS) {
            let len = length(rng, OBJECT_BYTES.0, OBJECT_BYTES.1);
            // A third is text, the rest compressed media.
            let bytes =
                if object % 3 == 0 { prose(rng, len).into_bytes() } else { noise(rng, len) };
            let path = format!("/webviewCache/{site:02x}{object:04x}");
            save(target, &path, &bytes)?;
            cache.prepare_cached("INSERT INTO cache VALUES(NULL,?,?,?,?,0)")?.execute(params![
                format!("{url}{object}/{}", prose(rng, 30)),
                path,
                "image/png",
                len as i64
            ])?;
        }
        for _ in 0..1 + below(rng, 4) {
            cookies.prepare_cached("INSERT INTO cookies VALUES(NULL,?,?,?)")?.execute(params![
                prose(rng, 8),
                prose(rng, 40),
                url
            ])?;
        }
        history
            .prepare_cached("UPDATE bookmarks SET title=? WHERE _id=?")?
            .execute(params![prose(rng, 30), site])?;
        Ok(())
    }
}

impl Workload for Browsing {
    fn prepare(&mut self, target: &dyn Target) -> Result<()> {
        target.mkdir("/webviewCache")
    }

    fn open(&mut self, target: &dyn Target) -> Result<()> {
        for (path, tables) in DATABASES {
            let db = sqlite::connect_to(target, path, &self.parameters)?;
            db.execute_batch(tables)?;
            self.databases.push(db);
        }
        Ok(())
    }

    fn step(&mut self, target: &dyn Target, step: u64, timer: &mut Timer) -> Result<()> {
        timer.time(|| target.now_ns(), || self.site(target, step as i64 + 1))
    }

    fn close(&mut self, _: &dyn Target) -> Result<()> {
        self.databases.drain(..).try_for_each(sqlite::close)
    }
}
