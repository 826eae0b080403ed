//! The `syncline-lab` program as users run it: arguments, files, output, exit codes.

#[path = "../../../crates/adapters/cli/tests/it/support/mod.rs"]
mod support;

mod advise;
mod bench;
mod documents;
mod evaluate;
mod failures;
mod flash;
mod generated;
mod install;
mod latency;
mod lifetime;
mod newcomer;
mod reports;
mod schemas;
mod stopped;
mod sweep;
mod terminal;
mod trace;
