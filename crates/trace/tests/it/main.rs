//! Everything of this crate through its public functions.

mod format;
