//! A log against an array of bytes, under power cuts, failing storage and fuzzed bytes.

mod crash;
mod faults;
mod files;
mod fuzz;
mod large;
mod memory;
mod model;
mod rearrange;
mod support;
