//! Tests of replays: on a volume, in a directory, and of the traces that ship.

mod advised;
mod directory;
mod logged;
mod samples;
mod simulated;
