//! A log against an array of bytes, under power cuts, failing storage and fuzzed bytes; what
//! it does to the life of flash.

mod crash;
mod faults;
mod files;
mod fuzz;
mod large;
mod lifetime;
mod memory;
mod model;
mod pace;
mod rearrange;
mod support;
mod tags;
