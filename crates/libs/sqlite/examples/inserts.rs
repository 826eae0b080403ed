//! Transactions a second through the loadable extension and through the Rust VFS, for `make
//! bench-libraries`: `inserts IMAGE rust|EXTENSION JOURNAL_MODE COUNT` prints the nanoseconds of
//! COUNT inserts, a transaction each.
//!
//! Both use the SQLite that is linked into this program, so that only the way to the volume
//! differs.

use std::error::Error;
use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use rusqlite::{Connection, ffi};
use syncline::{Disk, OpenOptions};
use syncline_sqlite::{SqliteVfs, VolumeFs};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, how, mode, count] = words.as_slice() else {
        return Err("IMAGE rust|EXTENSION JOURNAL_MODE COUNT".into());
    };
    let count: u32 = count.parse()?;
    if how == "rust" {
        let disk = Disk::open(Path::new(image), &OpenOptions::parse("")?)?;
        let (volume, clock) = disk.volume()?;
        let fs = VolumeFs::new(volume, clock, 0);
        fs.offer_atomic(true);
        let vfs = SqliteVfs::register("rust", Arc::new(fs), 1)?;
        measure(&vfs.open("/app.db")?, mode, count)?;
        drop(vfs);
        disk.close()?;
    } else {
        let loader = Connection::open_in_memory()?;
        load(&loader, how)?;
        let db = Connection::open(format!("file:/app.db?vfs=syncline&image={image}"))?;
        measure(&db, mode, count)?;
        db.close().map_err(|(_, err)| err)?;
    }
    Ok(())
}

fn measure(db: &Connection, mode: &str, count: u32) -> Result<(), Box<dyn Error>> {
    let set: String = db.query_row(&format!("PRAGMA journal_mode={mode}"), [], |row| row.get(0))?;
    if set != mode {
        return Err(format!("the journal mode is {set}").into());
    }
    db.execute_batch("PRAGMA synchronous=FULL; DROP TABLE IF EXISTS t; CREATE TABLE t(a, b)")?;
    let mut insert = db.prepare("INSERT INTO t VALUES(?, ?)")?;
    let text = "x".repeat(100);
    let begin = Instant::now();
    for at in 0..count {
        insert.execute(rusqlite::params![at, text])?;
    }
    println!("{}", begin.elapsed().as_nanos());
    Ok(())
}

/// Loads the extension; it stays loaded.
fn load(db: &Connection, extension: &str) -> Result<(), Box<dyn Error>> {
    let extension = CString::new(extension)?;
    let mut said = ptr::null_mut();
    // SAFETY: an open connection and C strings; the message is SQLite's, and not freed.
    unsafe {
        ffi::sqlite3_enable_load_extension(db.handle(), 1);
        if ffi::sqlite3_load_extension(db.handle(), extension.as_ptr(), ptr::null(), &mut said)
            != ffi::SQLITE_OK
        {
            let text = if said.is_null() { c"no reason" } else { CStr::from_ptr(said) };
            return Err(text.to_string_lossy().into_owned().into());
        }
    }
    Ok(())
}
