//! The commands, one a file. Each has `run`, which gets its arguments and prints.

pub(crate) mod advise;
pub(crate) mod bench;
pub(crate) mod block_replay;
pub(crate) mod cache;
pub(crate) mod compare;
pub(crate) mod devices;
pub(crate) mod fjord;
pub(crate) mod flash;
pub(crate) mod generated;
pub(crate) mod latency;
pub(crate) mod lifetime;
pub(crate) mod phone_apps;
pub(crate) mod probe;
pub(crate) mod reproduce;
pub(crate) mod sweep;
pub(crate) mod syscall_replay;
pub(crate) mod trace;
