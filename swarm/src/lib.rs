//! A BitTorrent client, librqbit, that keeps what it downloads in FlashLite logs, and a swarm on
//! the loopback interface that shows what reaches the device below (informed-storage paper,
//! sections 4.1 and 4.4.1, Figures 7 and 10).
//!
//! ```text
//!   peers: threads that serve pieces          client: a process, killed half way and started again
//!     | TCP on 127.0.0.1                        librqbit -> its own files   or  FlashLiteStorage
//!     +--------------------------------------------------------|
//!                                            Syncline mount, ext4, in the parent process
//!                                                   | recording: counts, block trace
//!                                                 memory
//! ```
//!
//! [`FlashLiteFactory`] is what a program takes that uses librqbit; all else is the measurement.
//! Tested in `tests/it`.

mod client;
mod content;
mod peers;
mod run;
mod stage;
mod storage;
mod table;
mod wear;

pub use client::{FinishArgs, LeechArgs, Storage, finish, leech};
pub use content::{Content, Torrent};
pub use peers::{Peers, Supply};
pub use run::{Outcome, Phase, RunArgs, SCHEMA, run};
pub use storage::{FlashLiteFactory, FlashLiteStorage, log_path};
pub use table::{aligned, tables};
pub use wear::Wear;
