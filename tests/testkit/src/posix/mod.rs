//! Conformance suite: the behaviour that programs may expect of a directory, and checks of it. A
//! developer's tool: no crate of the product depends on it.
//!
//! ```text
//!   conform   cases in a small language, one system call and its wanted answer a line
//!     script    the language: cases, repetitions, variables
//!     case      one case in a fresh directory: operations, users, remembered times
//!     calls     the operations as system calls
//!   fsx       random operations on one file against a model, with mmap, O_DIRECT, fallocate
//!   concurrent_readers    a file that is written while other programs read and map it
//!   matrix    every way to change a file beside every way to read it, from two processes
//!   stress    threads with self-checking trees
//!   ledger    threads whose synced files must survive a crash
//! ```
//!
//! Promises
//! - Every assertion has a name: file, line and text of the line in `cases/`.
//! - The same seed does the same operations.
//! - Nothing outside of the given directories is touched; what was made is removed at the end.
//!
//! Assumes a Linux kernel. Cases with other users need root and a directory that others may enter.
//! The suite is judged by the kernel's own ext4, the mount by both (`crates/adapters/cli/tests`).

pub mod concurrent_readers;
pub mod conform;
pub mod fsx;
pub mod ledger;
pub mod matrix;
pub mod stress;

mod calls;
mod case;
mod script;
