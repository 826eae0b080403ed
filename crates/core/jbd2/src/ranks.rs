//! Ranks of this crate's locks, in the order in which they are taken.
//!
//! ```text
//!   superblock -> state -> host | (the owner's, when it is called back) | cache shard -> block
//!   block -> transaction
//! ```
//!
//! | lock | protects | held during device I/O |
//! | --- | --- | --- |
//! | superblock | the journal superblock | its own writes, the flush before a new tail |
//! | state | everything in `state.rs` | never |
//! | host | who is told of an abort | never |
//! | shard | which blocks are cached | never |
//! | block | contents of one metadata block | reading that block |
//! | transaction | blocks, data and sets of the running transaction | never |
//!
//! A file system's locks come before all of these: a handle changes blocks under them. Those that
//! it takes when it is told that blocks are free have levels 2240 to 2299.

use syncline_base::lockrank::Rank;

pub(crate) const SUPERBLOCK: Rank = Rank::new(2000, "journal superblock");
pub(crate) const STATE: Rank = Rank::new(2100, "journal state");
pub(crate) const HOST: Rank = Rank::new(2200, "journal host");
pub(crate) const SHARD: Rank = Rank::new(2300, "buffer cache shard");
/// A family: a prefetch holds several blocks, each taken without waiting.
pub(crate) const BLOCK: Rank = Rank::family(2400, "metadata block");
pub(crate) const TRANSACTION: Rank = Rank::new(2500, "transaction");
