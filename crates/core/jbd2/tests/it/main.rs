//! Tests of the journal, on images in memory and beside e2fsprogs and the kernel.

mod common;
mod crash;
mod fast_commit;
mod fuzz;
mod interop;
mod packed;
mod recovery;
mod reservations;
mod schedules;
mod transactions;

/// As in the journal, whose turns `schedules` runs.
type Tid = u32;
