//! The reference file system and operation generators of model tests, for tests only.
//!
//! What tests need besides (stock images, judges, kernel mounts, comparable trees) is in
//! `syncline-testkit`, which no crate of the stack stands below, and is re-exported here.

#![forbid(unsafe_code)]

pub use syncline_testkit::*;
