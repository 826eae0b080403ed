//! NAND flash behind a translation layer, simulated, as a block device with contents.
//!
//! ```text
//!            Request                                           Profile (TOML, overridable)
//!               |                                                 |
//!   +-----------v-------------------------------------------------v-------------------------+
//!   | NandDevice   contents in a backing device, time in a Clock, power cuts                |
//!   |  Simulator   queue (depth 1: one command at a time) + command time                    |
//!   |   +------- Ftl, one file a scheme in ftl/; here page_map.rs ----------------------+   |
//!   |   | StreamTable --> frontier of stream 0  open page | WriteCache | programmed     |   |
//!   |   |  few runs   --> frontier of stream 1  held units| in flight  |  pages         |   |
//!   |   |  kept going --> frontier of the collector         VictimPolicy: greedy        |   |
//!   |   | MapCache: segments of the map in RAM, misses and dirty evictions cost         |   |
//!   |   +-------------------------------------------------------------------------------+   |
//!   |  Flash       Schedule: when dies and channels are free; erases, wear; Counters        |
//!   +---------------------------------------------------------------------------------------+
//! ```
//!
//! # The model
//! Data enters a volatile buffer over the host bus and is gathered into effective pages (planes x
//! page). A page is programmed when it is full, when a flush or a FUA write asks, or when its
//! stream is closed; what is missing is padding. Pages go round over the dies, so a large write
//! uses all of them and a 4 KiB write one. The device keeps a few sequential runs open: continuing
//! one is cheap; opening one more closes the run not used for longest, which completes its clusters
//! by copying, pads its page and writes its map. That, not the random place by itself, is why small
//! random writes are slow. Maps are cached by segment. When free superblocks run out the one with
//! fewest valid units is copied and erased while the host waits. A flush drains the buffer and adds
//! the controller's own time; a cache barrier keeps what it holds in order instead, and waits for
//! nothing. Cheaper controllers map whole superblocks and keep a few log blocks: BAST, FAST and
//! block mapping, with merges counted by kind ([`ftl`]). Everything is integer nanoseconds and
//! seeded: equal requests give equal times, counts and wear on every machine.
//!
//! Not modelled: read disturb, retention, bad blocks, suspend, idle-time collection.
//! Preconditioning is [`NandDevice::precondition`]; a new device is fresh.
//!
//! Tested in `tests/it/ftl.rs` (invariants, published write amplification, streams, determinism),
//! `tests/it/schemes` (merges by hand and against plain models), `tests/it/device.rs` (contents,
//! flush, cuts), `tests/it/profiles.rs` and `tests/it/nexus7.rs` (calibration).

#![forbid(unsafe_code)]

pub mod buffer;
pub mod calibration;
mod counters;
mod device;
mod error;
mod flash;
pub mod ftl;
pub mod gc;
mod geometry;
mod lifetime;
mod profile;

mod sim;
pub mod streams;
mod timing;
mod undo;

pub use counters::{Counters, Latencies, LatencyReport, Report, WAKE_NS, Wear};
pub use device::NandDevice;
pub use error::NandError;
pub use flash::Flash;
pub use geometry::{FREE_BLOCKS_MIN, Layout, NandGeometry};
pub use lifetime::{Lifetime, SlcWear};
pub use profile::{
    BufferParameters, EnergyParameters, FtlParameters, HostParameters, Mapping, Open, Profile,
    SlcFull, SlcParameters, Source, Victims, profiles,
};
pub use sim::Simulator;
pub use timing::{Schedule, Timing};
