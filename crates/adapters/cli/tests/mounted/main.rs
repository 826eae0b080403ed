//! Real programs and many threads on mounts, which are killed or lose their power.
//!
//! A process of their own: they load the machine for minutes, and tests of `tests/it` with a
//! deadline would run beside them. A process that hangs in a mount is also found by its program.

#[path = "../it/support/mod.rs"]
mod support;

mod crash;
mod periodic;
mod programs;
mod stress;
