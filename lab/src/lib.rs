//! The laboratory: workloads, traces, simulations and the papers' figures.
//!
//! ```text
//!   experiments      a command's measurement, from its request to its document
//!       |
//!   reproduce        tables and figures of the papers, measured anew
//!       |
//!   replay   probe   evaluate     traces on volumes; figures of a device; caches and flash
//!       |      |         |
//!   bench  latency       |        workloads on volumes; stalls of calls
//!       |      |         |
//!   report -- trace ------        tables and pages; traces of any format
//!       |
//!   nand, and the product: fs, buffer, cache, device, flashlite, SQLite's VFS
//! ```
//!
//! An arrow points down; the product uses nothing in here.

#![forbid(unsafe_code)]

pub mod bench;
mod error;
pub mod evaluate;
pub mod experiments;
pub mod latency;
mod observer;
pub mod probe;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod trace;

pub use error::{LabError, Result};
pub use observer::{Observer, Unobserved};
