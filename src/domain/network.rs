//! Ranges of addresses.

use std::net::IpAddr;

/// A range of addresses: `10.0.0.0/8`, `fd00::/8`, `127.0.0.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    bits: u8,
}

impl Network {
    /// The network of that text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let first: IpAddr = address.parse().map_err(|_| format!("{address:?} is no IP address"))?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(|| {
                format!("the prefix of {text:?} must be a number from 0 to {most}")
            })?,
        };
        Ok(Self { first, bits })
    }

    /// Whether that address is in it.
    pub fn has(&self, address: IpAddr) -> bool {
        // Both as far left as they go in 128 bits.
        let left = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
            IpAddr::V6(v6) => u128::from(v6),
        };
        let different = left(self.first) ^ left(address);
        self.first.is_ipv4() == address.is_ipv4()
            && different.leading_zeros() >= u32::from(self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_its_addresses_and_no_others() {
        let has = |network: &str, address: &str| {
            Network::parse(network).unwrap().has(address.parse().unwrap())
        };
        assert!(has("10.1.0.0/16", "10.1.255.3") && !has("10.1.0.0/16", "10.2.0.1"));
        assert!(has("127.0.0.1", "127.0.0.1") && !has("127.0.0.1", "127.0.0.2"));
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe80::1"));
        assert!(has("0.0.0.0/0", "9.9.9.9") && !has("0.0.0.0/0", "::1"));
        for bad in ["", "10.0.0.0/33", "10.0.0.0/-1", "proxy", "::/129", "10.0.0.0/"] {
            assert!(Network::parse(bad).is_err(), "{bad:?}");
        }
    }
}
