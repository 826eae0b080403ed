//! Everything of this crate through its public functions.

mod format;
mod hot;
mod import;
mod samples;
mod stat;
