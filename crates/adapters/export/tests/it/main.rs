//! Devices given to others: as a file, over the network block device protocol, through ublk; a
//! kernel file system on them with relaxed files.

mod export;
mod hints;
mod nbd;
mod ublk;
