//! Users behind connections from this machine.
//!
//! ```text
//!   sl  local_address rem_address   st tx_queue:rx_queue tr:tm->when retrnsmt   uid  timeout inode
//!    0: 0100007F:0801 0100007F:C352 01 00000000:00000000 00:00000000 00000000  1000        0 54321
//! ```
//! Source: proc(5), /proc/net/tcp and tcp6. Addresses are words in the byte order of the machine.
//!
//! AUTH_SYS lets a client name any user, so the server has to know whose program a client is. A
//! peer that the table does not have is another machine's; on the loopback interface there is no
//! such peer. A socket whose program has closed it (inode 0) is shown as root's and is nobody's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use rustix::process::geteuid;

/// State of a connection that both ends have open.
const ESTABLISHED: &str = "01";

/// A socket of this machine.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    local: (IpAddr, u16),
    remote: (IpAddr, u16),
    /// `None`: no program has it open.
    user: Option<u32>,
}

/// Returns whether the connection is another machine's, or of the user who serves or of root.
pub(crate) fn may_connect(stream: &TcpStream, peer: SocketAddr) -> bool {
    let Ok(own) = stream.local_addr() else { return false };
    let place = |of: SocketAddr| (of.ip().to_canonical(), of.port());
    let (peer, own) = (place(peer), place(own));
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    let lines = tables.iter().flatten().flat_map(|table| table.lines().skip(1));
    let found = lines.filter_map(parse).find(|at| at.local == peer && at.remote == own);
    match found {
        Some(Socket { user, .. }) => {
            user.is_some_and(|user| user == 0 || user == geteuid().as_raw())
        }
        None => !peer.0.is_loopback(),
    }
}

fn parse(line: &str) -> Option<Socket> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
    let state = fields.next()?;
    let user = fields.nth(3)?.parse().ok()?;
    let inode: u64 = fields.nth(1)?.parse().ok()?;
    let is_open = state == ESTABLISHED && inode != 0;
    Some(Socket { local, remote, user: is_open.then_some(user) })
}

fn address(field: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = field.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok();
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some((ip.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn lines_of_the_tables() {
        let line = "   0: 0100007F:0801 0100007F:C352 01 00000000:00000000 00:00000000 00000000  \
                    1000        0 54321 1 0000000000000000 20 4 30 10 -1";
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let socket = |user| Socket { local: (here, 0x801), remote: (here, 0xC352), user };
        assert_eq!(parse(line), Some(socket(Some(1000))));
        assert_eq!(parse(&line.replace("54321", "0")), Some(socket(None)), "closed");
        assert_eq!(parse(&line.replace(" 01 ", " 06 ")), Some(socket(None)), "TIME_WAIT");
        let mapped = line.replace("0100007F", "0000000000000000FFFF00000100007F");
        assert_eq!(parse(&mapped), Some(socket(Some(1000))));
        for bad in ["", "  sl  local_address", "0: 01:02 03:04 01", "0: 0100007F 0100007F:1 01"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
