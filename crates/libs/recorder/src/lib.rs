//! The periodic recorder: what happened before and after a fault, with a `push` that never waits.
//!
//! ```text
//!   producer            writer (high priority)                 lower thread
//!   push() --> ring --> Machine::step --> Strategy::begin      Strategy::lower
//!   trigger()  memory                     Strategy::append     write back, shrink + sync
//!              [ pre-fault | slack ]         |                     |
//!                                            v                     v
//!                                      one file per event: slots of one size, see `format`
//! ```
//!
//! Source: R. Okabe, M. Toyama, *Evaluation of Ext4 Write Latency for Real Time Systems* (the
//! write-latency paper), sections 3 and 4. What is different from its Figure 1: the thread that has
//! the data does not call write() itself, it copies into a ring, so that even a write() that stalls
//! loses nothing until the ring's slack is used up.
//!
//! Promises
//! - [`Producer::push`] does no system call, takes no lock, allocates nothing and has no loop but
//!   the copy: it is done in bounded time or says that the record was lost.
//! - Memory is bounded by [`Config::ring_bytes`] and a staging buffer, whatever events come.
//! - A record is in the file whole or reported: a reader finds every whole record after a power
//!   cut, and each gap ([`reader`]). Records reported durable survive one.
//! - An event that cannot be recorded is reported, and the others go on.
//! - The machine has neither clock nor thread: time comes with each record, I/O through
//!   [`Strategy`]. `os` has threads and files, and is the only part that does.
//!
//! Tested in `tests/it`.

#![deny(unsafe_code)]

mod config;
mod error;
pub mod format;
mod machine;
pub mod os;
pub mod reader;
mod ring;
mod strategy;
mod volume;

pub use config::Config;
pub use error::{RecorderError, Result};
pub use machine::{Machine, Outputs, Report, Step};
pub use ring::{Lost, Producer, Trigger, ring};
pub use strategy::{Done, Job, Strategy};
pub use volume::{EventVolume, VolumeStrategy};
