//! When data is written back.

pub(crate) mod limits;
pub(crate) mod state;
pub(crate) mod sweep;
pub(crate) mod throttle;
pub(crate) mod timers;
pub(crate) mod victims;
