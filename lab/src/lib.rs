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
//! An arrow points down; the product uses nothing in here. WebAssembly has no directories and
//! devices of a system, so `probe`, `replay` and `reproduce` are left out there (`bin/web`).

#![forbid(unsafe_code)]
#![cfg_attr(target_family = "wasm", allow(dead_code, reason = "parts of what is left out"))]

pub mod bench;
mod error;
pub mod evaluate;
pub mod experiments;
pub mod latency;
mod observer;
#[cfg(not(target_family = "wasm"))]
pub mod probe;
#[cfg(not(target_family = "wasm"))]
pub mod replay;
pub mod report;
#[cfg(not(target_family = "wasm"))]
pub mod reproduce;
pub mod trace;

pub use error::{LabError, Result};
pub use observer::{Observer, Unobserved};
