//! Tests of the benchmarks: runs, the figures of kernels and papers, aged volumes.

mod aged;
mod applications;
mod baseline;
mod calibration;
mod coarse_mtime;
mod common;
mod cost_model;
mod directory;
mod eager_bounds;
mod never_worse;
mod packed_bounds;
mod peers;
mod runs;
