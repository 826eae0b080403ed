//! Power cuts after acknowledged transactions: how many of them the next mount does not find.
//!
//! Each cut is a run of its own from the same start, and falls at the end of a transaction, so it
//! takes the most that a cut there can. Tested in `lab/tests/bench/runs.rs`.

use rusqlite::Connection;

use crate::bench::runner::{Simulation, Stack};
use crate::bench::target::Target;
use crate::bench::workloads::{DATABASE, Entry, close};
use crate::error::{LabError, Result};
use crate::latency::Timer;
use crate::observer::Observer;

/// Results of the cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Lost {
    /// Most acknowledged transactions that one cut took.
    pub(crate) transactions_max: u64,
    /// Longest time between the end of a transaction that a cut took and the cut, milliseconds.
    pub(crate) ms_max: f64,
}

impl Simulation<'_> {
    /// Cuts the power `cuts` times, evenly over `operations` of a workload that inserts a row each.
    pub(crate) fn lost(
        &self,
        entry: &Entry,
        operations: u64,
        cuts: u64,
        observer: &dyn Observer,
    ) -> Result<Lost> {
        let mut lost = Lost::default();
        for cut in 1..=cuts {
            if observer.stopped() {
                return Err(LabError::Interrupted);
            }
            let (found, ends_ns, cut_ns) = self.cut(entry, (operations * cut / cuts).max(1))?;
            let Some(first_ns) = ends_ns.get(found as usize) else { continue };
            let transactions = ends_ns.len() as u64 - found;
            lost.transactions_max = lost.transactions_max.max(transactions);
            lost.ms_max = lost.ms_max.max((cut_ns - first_ns) as f64 / 1e6);
        }
        Ok(lost)
    }

    /// Cuts the power after so many transactions. Returns the rows found afterwards, the end of
    /// each transaction and the time of the cut.
    fn cut(&self, entry: &Entry, transactions: u64) -> Result<(u64, Vec<u64>, u64)> {
        let stack = Stack::with_power_cuts(self.profile, self.image.snapshot())?;
        let (target, mut workload) = self.open(&stack, entry)?;
        let (mut timer, mut ends_ns) = (Timer::default(), Vec::new());
        for step in 0..transactions {
            workload.step(&target, step, &mut timer)?;
            ends_ns.push(target.now_ns());
        }
        let cut_ns = target.now_ns();
        stack.nand.cut()?;
        // Without power the database cannot be closed.
        let _ = workload.close(&target);
        drop((workload, target));
        stack.nand.power_on();
        let target = stack.mount(self.mount, self.parameters.seed)?;
        let db = target.database(DATABASE)?;
        let found = rows(&db)?;
        close(db)?;
        target.unmount()?;
        Ok((found, ends_ns, cut_ns))
    }
}

/// Rows of an intact database, which are the first that were inserted.
fn rows(db: &Connection) -> Result<u64> {
    let verdict: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    let (count, last): (i64, i64) =
        db.query_row("SELECT count(*), coalesce(max(id), 0) FROM t", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    if verdict != "ok" || count != last {
        let text = format!("after a power cut: {verdict}, {count} rows up to {last}");
        return Err(LabError::wrong_data(text));
    }
    Ok(count as u64)
}
