//! The evaluation framework: pages of traces, runs, players.

mod golden;
mod os;
mod pages;
mod player;
mod policies;
mod run;
mod support;
