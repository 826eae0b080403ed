//! Connections from this machine on a system that does not say whose they are.

use std::net::{SocketAddr, TcpStream};

/// Returns whether the connection is another machine's.
pub(crate) fn may_connect(_: &TcpStream, peer: SocketAddr) -> bool {
    !peer.ip().to_canonical().is_loopback()
}
