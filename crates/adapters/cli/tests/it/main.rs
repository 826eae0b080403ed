//! The `syncline` program as users run it: arguments, files, output, exit codes, mounts.
//!
//! Programs that work on mounts while these are killed are in `tests/mounted`.

mod archives;
mod boots;
mod buffer;
mod copies;
mod ctl;
mod documents;
mod failures;
mod features;
mod flashlite;
mod generated;
mod in_use;
mod install;
mod layers;
mod mount;
mod mount_unmount;
mod newcomer;
mod preload;
mod private;
mod races;
mod recipe;
mod record;
mod recovery;
mod repair;
mod rescue;
mod sandbox;
mod serve;
mod service;
mod several;
mod shell;
mod stopped;
mod strangers;
mod support;
mod terminal;
mod top;
mod transfer;
