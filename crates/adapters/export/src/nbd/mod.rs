//! Any device over the network block device protocol, on a local socket.
//!
//! ```text
//!   nbd-client, qemu, libnbd            Listener: 0600 socket, or a port of the loopback address
//!        | handshake (fixed newstyle)        |  one thread a connection, 16 connections
//!        | requests, any number              v
//!        `------------------> reader --> 4 workers --> Bytes --> BlockDevice
//!                                            `--> replies, as they are done
//! ```
//!
//! Source: the protocol's specification (doc/proto.md of the reference implementation).
//!
//! Promises
//! - `FLUSH`, and `FUA` of writes, zeros and discards, return when everything that they cover is
//!   durable, whichever connection it came by (`CAN_MULTI_CONN`). Without them nothing is.
//! - Structured replies if the client asks for them; TLS, meta contexts and extended headers are
//!   refused by name.
//! - A failed request is answered with its error, and the connection continues. What is no request,
//!   or promises more than 32 MiB, ends the connection.
//! - Bounded: connections, option data, time of a handshake (30 s), requests under way (20 a
//!   connection, 32 MiB each).
//! - A socket in a directory serves its owner and root only. Every user of this machine can
//!   connect to a port.
//!
//! Tested in `tests/it/nbd.rs`: by a client of its own, and by qemu-img, qemu-io, nbdinfo and
//! nbdcopy.

mod handshake;
mod protocol;
mod server;
mod stream;
mod transmission;

pub use server::{NbdError, NbdServed, NbdServer, NbdSocket};
pub use stream::Listen;
