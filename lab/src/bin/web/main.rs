//! The laboratory in WebAssembly: the demo and the traces of the page.
//!
//! ```text
//!   page/lab-worker.js -> boundary (two buffers) -> demo, trace -> syncline_lab::experiments
//!                            ^ read, progress, part    |
//!                            └─────── host ────────────┘
//! ```
//!
//! Requests and results are JSON. Nothing is simplified for a browser: runs are those of
//! `syncline-lab bench` and `lifetime`, in virtual time, with the same figures. Assumption: one
//! thread. Tested with Chromium in `crates/adapters/wasm/test/lab.test.js`, against the program.

#![deny(unsafe_code)]

#[cfg(target_family = "wasm")]
mod boundary;
#[cfg(target_family = "wasm")]
mod demo;
#[cfg(target_family = "wasm")]
mod host;
#[cfg(target_family = "wasm")]
mod trace;

fn main() {}
