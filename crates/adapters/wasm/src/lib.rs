//! ext4 images in WebAssembly. JavaScript gives the bytes of a device and calls; `npm/` has the
//! package around it and `page/` the page.
//!
//! ```text
//!   npm/ext4.js -> boundary (numbers and two buffers) -> Session -> image -> volume
//!                     ^ read, write, flush, emit, progress, now      |
//!                     └────────────── Host <─────────────────────────┘
//! ```
//!
//! Promises
//! - One instance of the module serves one image. JavaScript drops it with the image, so that its
//!   memory goes, and after a trap.
//! - Nothing is written to the device unless it is mounted to be written to, repaired or formatted.
//! - Results are JSON, or bytes. Names are bytes: those that are no UTF-8 have a surrogate for each
//!   such byte, U+DC80 to U+DCFF, in both directions.
//!
//! Assumption: one thread. Tested in `npm/test` with Node, and the page in `test` with Chromium.

#![deny(unsafe_code)]

#[cfg(target_arch = "wasm32")]
mod boundary;
pub mod changes;
pub mod failure;
pub mod files;
pub mod host;
pub mod info;
mod json;
pub mod session;
mod tar;
