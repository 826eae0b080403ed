//! RL Benchmark: SQLite, thirteen phases on three tables, as SQLite's own speed comparison
//! (sqlite.org/speed.html) that it was ported from.
//!
//! One step is one phase. Counts are the public ones at `scale_percent` 100. Only the first phase
//! commits each statement by itself; the selects read what the page cache may not hold.

use crate::latency::Timer;
use rand_chacha::ChaCha8Rng;
use rusqlite::{Connection, params};

use super::scaled;
use crate::bench::target::Target;
use crate::bench::workloads::{Parameters, Workload, below, not_open, random, sqlite};
use crate::error::{LabError, Result};

/// Phases of a run.
pub(super) const PHASES: u64 = 13;
/// Largest second column.
const VALUE_MAX: u64 = 100_000;

struct Rlbench {
    parameters: Parameters,
    rng: ChaCha8Rng,
    db: Option<Connection>,
}

pub(super) fn rlbench(p: &Parameters, _: u64) -> Box<dyn Workload> {
    Box::new(Rlbench { parameters: p.clone(), rng: random(p.seed), db: None })
}

const TABLES: &str = "CREATE TABLE t1(a INTEGER, b INTEGER, c VARCHAR(100));
    CREATE TABLE t2(a INTEGER, b INTEGER, c VARCHAR(100));
    CREATE TABLE t3(a INTEGER, b INTEGER, c VARCHAR(100));
    CREATE INDEX i3 ON t3(c);";

impl Rlbench {
    fn count(&self, count: u64) -> u64 {
        scaled(count, self.parameters.scale_percent)
    }

    /// `count` rows into a table.
    fn insert(&mut self, db: &Connection, table: &str, count: u64) -> Result<()> {
        let mut statement = db.prepare_cached(&format!("INSERT INTO {table} VALUES(?,?,?)"))?;
        for a in 1..=self.count(count) as i64 {
            let b = below(&mut self.rng, VALUE_MAX);
            statement.execute(params![a, b as i64, in_words(b)])?;
        }
        Ok(())
    }

    /// Sums over ranges of the second column.
    fn ranges(&self, db: &Connection, count: u64, width: i64) -> Result<()> {
        let mut statement =
            db.prepare_cached("SELECT count(*), avg(b) FROM t2 WHERE b>=? AND b<?")?;
        for n in 0..self.count(count) as i64 {
            let low = n * 100 % VALUE_MAX as i64;
            let _: i64 = statement.query_row([low, low + width], |row| row.get(0))?;
        }
        Ok(())
    }

    fn phase(&mut self, db: &Connection, phase: u64) -> Result<()> {
        match phase {
            0 => self.insert(db, "t1", 1000),
            1 => in_transaction(db, || self.insert(db, "t2", 25_000)),
            2 => in_transaction(db, || self.insert(db, "t3", 25_000)),
            3 => self.ranges(db, 100, 1000),
            4 => {
                let mut statement =
                    db.prepare_cached("SELECT count(*), avg(b) FROM t2 WHERE c LIKE ?")?;
                for n in 0..self.count(100) {
                    let like = format!("%{}%", in_words(n + 1));
                    let _: i64 = statement.query_row([like], |row| row.get(0))?;
                }
                Ok(())
            }
            5 => batch(db, "CREATE INDEX i2a ON t2(a); CREATE INDEX i2b ON t2(b);"),
            6 => self.ranges(db, 5000, 100),
            7 => in_transaction(db, || {
                let mut statement = db.prepare_cached("UPDATE t1 SET b=b*2 WHERE a>=? AND a<?")?;
                for n in 0..self.count(1000) as i64 {
                    statement.execute([n * 10, n * 10 + 10])?;
                }
                Ok(())
            }),
            8 => in_transaction(db, || {
                let mut statement = db.prepare_cached("UPDATE t2 SET b=? WHERE a=?")?;
                for a in 1..=self.count(25_000) as i64 {
                    statement.execute([below(&mut self.rng, VALUE_MAX) as i64, a])?;
                }
                Ok(())
            }),
            9 => in_transaction(db, || {
                batch(
                    db,
                    "INSERT INTO t1 SELECT b,a,c FROM t2; INSERT INTO t2 SELECT b,a,c FROM t1;",
                )
            }),
            10 => in_transaction(db, || batch(db, "DELETE FROM t2 WHERE c LIKE '%fifty%'")),
            11 => in_transaction(db, || batch(db, "DELETE FROM t2 WHERE a>10 AND a<20000")),
            12 => batch(db, "DROP TABLE t1; DROP TABLE t2; DROP TABLE t3;"),
            _ => Err(LabError::Usage(
                "fjord/rlbench has thirteen phases; shorten them with --scale".to_owned(),
            )),
        }
    }
}

fn batch(db: &Connection, statements: &str) -> Result<()> {
    Ok(db.execute_batch(statements)?)
}

fn in_transaction(db: &Connection, what: impl FnOnce() -> Result<()>) -> Result<()> {
    batch(db, "BEGIN")?;
    what()?;
    batch(db, "COMMIT")
}

/// A number below a million as English words.
fn in_words(number: u64) -> String {
    const SMALL: [&str; 20] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    const TENS: [&str; 8] =
        ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
    let rest = |rest: u64| match rest {
        0 => String::new(),
        _ => format!(" {}", in_words(rest)),
    };
    match number {
        0..20 => SMALL[number as usize].to_owned(),
        20..100 => format!("{}{}", TENS[number as usize / 10 - 2], rest(number % 10)),
        100..1000 => format!("{} hundred{}", in_words(number / 100), rest(number % 100)),
        _ => format!("{} thousand{}", in_words(number / 1000), rest(number % 1000)),
    }
}

impl Workload for Rlbench {
    fn prepare(&mut self, target: &dyn Target) -> Result<()> {
        sqlite::close(sqlite::connect(target, &self.parameters)?)
    }

    fn open(&mut self, target: &dyn Target) -> Result<()> {
        let db = sqlite::connect(target, &self.parameters)?;
        batch(&db, TABLES)?;
        self.db = Some(db);
        Ok(())
    }

    fn step(&mut self, target: &dyn Target, step: u64, timer: &mut Timer) -> Result<()> {
        let db = self.db.take().ok_or_else(not_open)?;
        let done = timer.time(|| target.now_ns(), || self.phase(&db, step));
        self.db = Some(db);
        done
    }

    fn close(&mut self, _: &dyn Target) -> Result<()> {
        self.db.take().map_or(Ok(()), sqlite::close)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_words() {
        for (number, words) in [
            (0, "zero"),
            (19, "nineteen"),
            (40, "forty"),
            (13_153, "thirteen thousand one hundred fifty three"),
            (99_999, "ninety nine thousand nine hundred ninety nine"),
        ] {
            assert_eq!(in_words(number), words);
        }
    }
}
