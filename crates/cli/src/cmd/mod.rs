//! The commands, one a file. Each has `run`, which gets its arguments and prints.

pub(crate) mod bench;
pub(crate) mod buffer;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod cp;
pub(crate) mod devices;
pub(crate) mod flash;
pub(crate) mod flashlite;
pub(crate) mod generated;
pub(crate) mod info;
pub(crate) mod latency;
pub(crate) mod lifetime;
pub(crate) mod ls;
pub(crate) mod mkdir;
pub(crate) mod mount;
pub(crate) mod mv;
pub(crate) mod preload;
pub(crate) mod record;
pub(crate) mod record_read;
pub(crate) mod recover;
pub(crate) mod replay;
pub(crate) mod rm;
pub(crate) mod stat;
pub(crate) mod status;
pub(crate) mod trace;
pub(crate) mod umount;
