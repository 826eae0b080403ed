//! Everything of this crate through its public functions.

mod format;
mod hot;
mod import;
mod kernel;
mod memory;
mod owners;
mod samples;
mod stat;
mod tools;
