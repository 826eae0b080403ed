//! Ranks of this crate's locks, in the order in which they are taken.
//!
//! | lock | protects | held during |
//! | --- | --- | --- |
//! | sync latencies | histogram of synchronous calls | the making of a status document |
//! | transport | name of the way of requests | reads and changes of it only |
//! | traffic | bytes and syncs by file | table changes only |
//! | names of traffic | last known names of files | the making of a status document |
//!
//! A mount takes them after its own (`fuse/src/ranks.rs`). The volume's come after them: the making
//! of a status document calls it.

use syncline_base::lockrank::Rank;

pub(crate) const SYNC_LATENCIES: Rank = Rank::new(300, "sync latencies");
pub(crate) const TRANSPORT: Rank = Rank::new(350, "transport");
pub(crate) const TRAFFIC: Rank = Rank::new(400, "traffic");
pub(crate) const TRAFFIC_NAMES: Rank = Rank::new(410, "names of traffic");
