//! Devices given to others: as a file, over the network block device protocol, through ublk; a
//! kernel file system on them with relaxed files, and its repair after power cuts.

mod export;
mod hints;
mod kernel;
mod nbd;
mod repairs;
mod ublk;
