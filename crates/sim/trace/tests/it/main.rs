//! Everything of this crate through its public functions.

mod format;
mod hot;
mod import;
mod kernel;
mod memory;
mod samples;
mod stat;
mod tools;
