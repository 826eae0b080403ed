//! Devices given to others: as a file, over the network block device protocol, through ublk.

mod export;
mod nbd;
mod ublk;
