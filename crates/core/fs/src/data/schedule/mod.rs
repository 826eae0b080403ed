//! Schedule of write-back: order, time and thread of the writes of dirty data.
//!
//! ```text
//!   timers       age and background limit; the tick of the maintenance thread or the simulation
//!   limits       dirty limits that change while mounted
//!   throttle     writers that dirty too much write back themselves
//!   incremental  incremental write-back of eager mode, in steps of bounded length
//!   victims      orders of pages (`writeback=policy` and `space`)
//!   state        what all of them remember
//! ```

pub(crate) mod incremental;
pub(crate) mod limits;
pub(crate) mod state;
pub(crate) mod throttle;
pub(crate) mod timers;
pub(crate) mod victims;
