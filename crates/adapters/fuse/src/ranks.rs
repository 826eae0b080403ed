//! Ranks of this crate's locks, in the order in which they are taken.
//!
//! ```text
//!   parking   queue policy   nodes   atomic writes   those of a status
//! ```
//!
//! | lock | protects | held during |
//! | --- | --- | --- |
//! | parking | which workers wait for requests, which are parked | notifications only |
//! | queue policy | workers of a processor, one lock for each | changes of their policy only |
//! | nodes | references of the kernel to inodes, one lock for each shard | table changes only |
//! | atomic writes | atomic writes by open file | staged reads and writes of one |
//!
//! The locks of a status are in the crate `control`. The volume's locks come after all of these:
//! staged reads and writes, and the status document, call it under theirs. Otherwise a worker holds
//! none while it calls the volume.

use syncline_base::lockrank::Rank;

pub(crate) const PARKING: Rank = Rank::new(100, "worker parking");
pub(crate) const QUEUE_POLICY: Rank = Rank::new(150, "policy of a queue");
pub(crate) const NODES: Rank = Rank::new(200, "kernel references");
pub(crate) const ATOMICS: Rank = Rank::new(250, "atomic writes");
