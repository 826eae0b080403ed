//! Model tests of the volume: a reference file system, random operations, and what compares them;
//! crash workloads with judges of what a power cut may leave.
//!
//! ```text
//!   sparse       bytes of a file
//!   reference    names, inodes, errors as Linux gives them
//!   ops          seeded operations
//!   runner       applies them to a Volume and the reference, compares every answer
//!   shrink       the smallest part of a list that still fails
//!   volume_tree  a Volume as TreeSource and TreeSink
//! ```
//!
//! Promises
//! - Nothing in here is part of the product: no other crate depends on it except for its tests.
//! - Same seed, same operations, same device requests.
//!
//! Other test tools (stock images, judges, kernel mounts, comparable trees) are in
//! `syncline-testkit`, which depends on no crate of the stack. They are re-exported here.
//!
//! The tests that use it stand in `tests/`: `model`, `crash`, `faults`, `fuzz_smoke`, `interop`.

#![forbid(unsafe_code)]

pub mod ops;
pub mod reference;
mod runner;
mod shrink;
mod sparse;
mod tree_compare;
mod volume_tree;

pub use runner::{Mismatch, ModelConfig, RunStats, run_ops};
pub use shrink::shrink;
pub use sparse::SparseBytes;
pub use tree_compare::compare_tree;
pub use volume_tree::VolumeTree;

pub use syncline_testkit::*;
