//! SQLite transactions in AndroBench's shape: a table of 17 columns (4 integers, 13 texts of 12
//! bytes), single-row inserts, updates and deletes by key, each its own transaction.
//!
//! An update runs after the inserts of the same rows, a delete after both, on the same connection,
//! as AndroBench and the stored kernel figures have it. What comes before is not measured.

use crate::latency::Timer;
use rand_chacha::ChaCha8Rng;
use rusqlite::{Connection, params_from_iter, types::Value};
use serde::{Deserialize, Serialize};

use super::{Parameters, Workload, below, not_open, random};
use crate::bench::target::Target;
use crate::error::{LabError, Result};

/// SQLite's journal modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalMode {
    /// The journal is deleted at each commit (SQLite's default).
    Delete,
    /// The journal is truncated to nothing.
    Truncate,
    /// The journal's header is zeroed.
    Persist,
    /// The journal is in memory: a crash inside of a transaction may corrupt the database.
    Memory,
    /// Write-ahead log, locking mode EXCLUSIVE.
    Wal,
    /// As delete, with atomic writes of the file system: no journal as long as they do.
    Atomic,
}

impl JournalMode {
    /// Every mode, in the order of reports.
    pub const ALL: [JournalMode; 6] = [
        JournalMode::Delete,
        JournalMode::Truncate,
        JournalMode::Persist,
        JournalMode::Memory,
        JournalMode::Wal,
        JournalMode::Atomic,
    ];

    /// Lower-case name, as in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            JournalMode::Delete => "delete",
            JournalMode::Truncate => "truncate",
            JournalMode::Persist => "persist",
            JournalMode::Memory => "memory",
            JournalMode::Wal => "wal",
            JournalMode::Atomic => "atomic",
        }
    }

    /// Value of `PRAGMA journal_mode`.
    fn pragma(self) -> &'static str {
        match self {
            JournalMode::Atomic => JournalMode::Delete.name(),
            other => other.name(),
        }
    }

    /// The mode of this name.
    pub fn by_name(name: &str) -> Result<JournalMode> {
        JournalMode::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| {
            let names = JournalMode::ALL.map(JournalMode::name).join(", ");
            LabError::Usage(format!("unknown journal mode `{name}`; choose of {names}"))
        })
    }
}

/// SQLite's `PRAGMA synchronous`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    /// No sync at all: a power cut may corrupt the database.
    Off,
    /// WAL: synced at checkpoints only; a power cut loses the last transactions.
    Normal,
    /// Every transaction is durable (SQLite's default).
    Full,
    /// As full, and the directory is synced after a journal is deleted.
    Extra,
}

impl Synchronous {
    /// Lower-case name, as in the pragma.
    pub fn name(self) -> &'static str {
        match self {
            Synchronous::Off => "off",
            Synchronous::Normal => "normal",
            Synchronous::Full => "full",
            Synchronous::Extra => "extra",
        }
    }
}

/// The database of these workloads.
pub(crate) const DATABASE: &str = "/bench.db";

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, i1 INTEGER, i2 INTEGER, i3 INTEGER, \
     c1 TEXT, c2 TEXT, c3 TEXT, c4 TEXT, c5 TEXT, c6 TEXT, c7 TEXT, c8 TEXT, c9 TEXT, c10 TEXT, \
     c11 TEXT, c12 TEXT, c13 TEXT)";
const INSERT: &str = "INSERT INTO t VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
const UPDATE: &str = "UPDATE t SET i1=?, c1=?, c7=?, c13=? WHERE id=?";
const DELETE: &str = "DELETE FROM t WHERE id=?";

/// The workload's database.
pub(super) fn connect(target: &dyn Target, p: &Parameters) -> Result<Connection> {
    connect_to(target, DATABASE, p)
}

/// Opens a database with its pragmas set. WAL wants its locking mode first.
pub(crate) fn connect_to(target: &dyn Target, path: &str, p: &Parameters) -> Result<Connection> {
    let is_atomic = p.journal_mode == JournalMode::Atomic;
    target.allow_atomic(is_atomic)?;
    let db = target.database(path)?;
    let mut pragmas = String::new();
    if p.journal_mode == JournalMode::Wal {
        pragmas += "PRAGMA locking_mode=EXCLUSIVE; ";
    }
    pragmas += &format!(
        "PRAGMA journal_mode={}; PRAGMA synchronous={};",
        p.journal_mode.pragma(),
        p.synchronous.name()
    );
    db.execute_batch(&pragmas)?;
    let mode: String = db.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if mode != p.journal_mode.pragma() {
        return Err(LabError::Usage(format!(
            "SQLite keeps journal mode {mode} instead of {}; choose another one",
            p.journal_mode.pragma()
        )));
    }
    if is_atomic && !syncline_sqlite::offers_atomic(&db) {
        let text = "no atomic writes here; journal mode atomic needs sync=eager, or f2fs";
        return Err(LabError::Usage(text.to_owned()));
    }
    Ok(db)
}

/// Makes the table.
pub(super) fn make_table(target: &dyn Target, p: &Parameters) -> Result<()> {
    make_table_at(target, DATABASE, p)
}

/// As [`make_table`], in the database at `path`.
pub(super) fn make_table_at(target: &dyn Target, path: &str, p: &Parameters) -> Result<()> {
    close(connect_to(target, path, p).and_then(|db| {
        db.execute_batch(SCHEMA)?;
        Ok(db)
    })?)
}

/// Closes, with the error that a drop would swallow.
pub(crate) fn close(db: Connection) -> Result<()> {
    db.close().map_err(|(_, err)| err.into())
}

fn text(rng: &mut ChaCha8Rng) -> Value {
    Value::Text((0..12).map(|_| char::from(b'a' + below(rng, 26) as u8)).collect())
}

fn integer(rng: &mut ChaCha8Rng) -> Value {
    Value::Integer(below(rng, 1 << 24) as i64)
}

/// One transaction: row `id` is inserted.
pub(super) fn insert_row(db: &Connection, rng: &mut ChaCha8Rng, id: i64) -> Result<()> {
    let mut values = vec![Value::Integer(id)];
    values.extend((0..3).map(|_| integer(rng)));
    values.extend((0..13).map(|_| text(rng)));
    changed_one(db.prepare_cached(INSERT)?.execute(params_from_iter(values))?)
}

fn update_row(db: &Connection, rng: &mut ChaCha8Rng, id: i64) -> Result<()> {
    let mut values = vec![integer(rng)];
    values.extend((0..3).map(|_| text(rng)));
    values.push(Value::Integer(id));
    changed_one(db.prepare_cached(UPDATE)?.execute(params_from_iter(values))?)
}

fn delete_row(db: &Connection, _: &mut ChaCha8Rng, id: i64) -> Result<()> {
    changed_one(db.prepare_cached(DELETE)?.execute([id])?)
}

fn changed_one(rows: usize) -> Result<()> {
    if rows == 1 {
        return Ok(());
    }
    Err(LabError::wrong_data(format!("a transaction changed {rows} rows instead of one")))
}

/// A transaction on the row of this key.
type Transaction = fn(&Connection, &mut ChaCha8Rng, i64) -> Result<()>;

/// Transactions in order; only the last kind is measured.
struct Sqlite {
    parameters: Parameters,
    rows: u64,
    before: &'static [Transaction],
    measured: Transaction,
    rng: ChaCha8Rng,
    db: Option<Connection>,
}

fn sqlite(
    p: &Parameters,
    rows: u64,
    before: &'static [Transaction],
    measured: Transaction,
) -> Box<dyn Workload> {
    let (parameters, rng) = (p.clone(), random(p.seed));
    Box::new(Sqlite { parameters, rows, before, measured, rng, db: None })
}

pub(super) fn insert(p: &Parameters, rows: u64) -> Box<dyn Workload> {
    sqlite(p, rows, &[], insert_row)
}

pub(super) fn update(p: &Parameters, rows: u64) -> Box<dyn Workload> {
    sqlite(p, rows, &[insert_row], update_row)
}

/// The workload whose rows say which transactions are there.
pub const INSERT_NAME: &str = "sqlite/insert";

/// The workload that runs out of rows.
pub(super) const DELETE_NAME: &str = "sqlite/delete";

pub(super) fn delete(p: &Parameters, rows: u64) -> Box<dyn Workload> {
    sqlite(p, rows, &[insert_row, update_row], delete_row)
}

impl Workload for Sqlite {
    fn prepare(&mut self, target: &dyn Target) -> Result<()> {
        make_table(target, &self.parameters)
    }

    fn open(&mut self, target: &dyn Target) -> Result<()> {
        let db = connect(target, &self.parameters)?;
        let _: i64 = db.query_row("SELECT count(*) FROM t", [], |row| row.get(0))?;
        for transaction in self.before {
            for id in 1..=self.rows as i64 {
                transaction(&db, &mut self.rng, id)?;
            }
        }
        self.db = Some(db);
        Ok(())
    }

    fn step(&mut self, target: &dyn Target, step: u64, timer: &mut Timer) -> Result<()> {
        let db = self.db.as_ref().ok_or_else(not_open)?;
        // Rows are inserted without end, and updated again and again.
        let id = if self.before.is_empty() { step } else { step % self.rows } as i64 + 1;
        timer.time(|| target.now_ns(), || (self.measured)(db, &mut self.rng, id))
    }

    fn close(&mut self, _: &dyn Target) -> Result<()> {
        self.db.take().map_or(Ok(()), close)
    }
}
