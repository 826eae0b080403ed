//! Tests of the volume, on images in memory, judged by e2fsck, debugfs and the kernel.

mod atomic;
mod bed;
mod check;
mod eager;
mod fast_commit;
mod file_io;
mod file_io_faults;
mod file_io_sync;
mod gates;
mod hot_zones;
mod memory;
mod mtime;
mod namespace;
mod namespace_big;
mod namespace_trees;
mod namespace_xattr;
mod options;
mod periodic;
mod play;
mod relaxed;
mod settled;
mod space;
mod space_corrupt;
mod space_counts;
mod space_model;
mod tree;
