//! Everything of this crate through its public functions.

mod format;
mod import;
mod samples;
mod stat;
