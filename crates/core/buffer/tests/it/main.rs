//! The buffer as its users see it: contents, crashes, failing devices, counts.
//!
//! Variables: `SYNCLINE_CRASH_STATES` (states of the long run over all configurations, `make
//! crash-long`), `SYNCLINE_CRASH_STATE` (one state again; a failure prints the command).

mod common;
mod counts;
mod crash;
mod faults;
mod model;
