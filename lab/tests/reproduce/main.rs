//! Tests of the catalogue and of its cheap rows.

mod lengths;
mod rows;
