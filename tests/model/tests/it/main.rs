//! The volume against a reference file system, the kernel, failing devices and power cuts.
//!
//! Broken images are in `tests/fuzz_smoke.rs`, whose allocator measures the whole process.

mod crash;
mod faults;
mod interop;
mod model;
