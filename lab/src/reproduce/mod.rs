//! The tables and figures of the source papers, each with the run that yields ours.
//!
//! ```text
//!   baselines/reproduce/PAPER.toml          a row a table or figure: the paper's values, the runs
//!        |  Catalog: parsed, checked
//!        v
//!   Session::row ── Planned ──> bench, replay, evaluate, nand     called as libraries
//!        |                      `syncline ...` for rows in real time
//!        v
//!   Reproduced ── Document ──> text, JSON (syncline.reproduce/1), HTML with what agrees
//! ```
//!
//! Promises
//! - Nothing of a paper is in code, and nothing of ours is in the catalogue: a row names a run and
//!   a metric of it.
//! - Rows in virtual time give the same figures on every machine. The short form of all of them is
//!   made to end within minutes; the full form has the papers' lengths where they differ.
//! - Rows in real time are listed, and run only on request. A table that needs data which is not
//!   public is listed with the reason and the substitute.
//! - Equal runs of several rows are made once.
//!
//! Tested in `lab/tests/reproduce`:
//! every row of the catalogue is complete, and the cheap rows give the values that are held there.

mod catalog;
mod document;
mod finished;
mod measured;
mod mixed;
mod page;
mod planned;
mod session;

pub use catalog::{Catalog, Figure, Paper, Published, Reason, Row, Time, differs, reason};
pub use document::{Compared, Document, Reproduced, SCHEMA};
pub use finished::Finished;
pub use measured::Measured;
pub use mixed::{MIXES, Mix};
pub use page::page;
pub use planned::{Form, Planned};
pub use session::{Program, Session};
