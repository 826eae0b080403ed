//! Peers that may connect.

use std::net::IpAddr;
use std::str::FromStr;

/// Addresses with a common prefix: `192.168.7.0/24`, `fd00::/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    address: IpAddr,
    bits: u32,
}

impl Allowed {
    /// Returns whether the address is one of these.
    ///
    /// ```
    /// let net: syncline_nfs::Allowed = "192.168.7.0/24".parse().unwrap();
    /// assert!(net.holds("192.168.7.9".parse().unwrap()));
    /// assert!(!net.holds("192.168.8.9".parse().unwrap()));
    /// ```
    #[must_use]
    pub fn holds(&self, peer: IpAddr) -> bool {
        match (self.address, peer.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(peer)) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                net.to_bits() & mask == peer.to_bits() & mask
            }
            (IpAddr::V6(net), IpAddr::V6(peer)) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                net.to_bits() & mask == peer.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Allowed, String> {
        let bad = || format!("`{text}` is not an address; use ADDRESS or ADDRESS/BITS");
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse::<u32>().map_err(|_| bad()))?;
        if bits > most { Err(bad()) } else { Ok(Allowed { address, bits }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_both_families() {
        let holds =
            |net: &str, peer: &str| net.parse::<Allowed>().unwrap().holds(peer.parse().unwrap());
        assert!(holds("10.1.2.3", "10.1.2.3") && !holds("10.1.2.3", "10.1.2.4"));
        assert!(holds("0.0.0.0/0", "8.8.8.8") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("10.0.0.0/8", "::ffff:10.9.9.9"), "an IPv4 peer of an IPv6 socket");
        assert!(holds("fd00::/8", "fdab::1") && !holds("fd00::/8", "fe80::1"));
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "host"] {
            assert!(bad.parse::<Allowed>().is_err(), "{bad}");
        }
    }
}
