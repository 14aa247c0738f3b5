//! How often somebody may ask.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;

use crate::http::LimitRules;
use crate::store::Rate;

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

/// The flags of rate limits.
#[derive(Debug, Args)]
#[command(next_help_heading = "Rate limits, over all replicas (0: none; 429 with Retry-After)")]
pub struct LimitFlags {
    /// Purchases of a user: so many at once, and as many a minute afterwards.
    #[arg(long, env = "LIMIT_ORDERS_USER", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub limit_orders_user: u32,
    /// Purchases from an address (of IPv6: from a /64): so many at once, and as many a minute.
    #[arg(long, env = "LIMIT_ORDERS_ADDRESS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub limit_orders_address: u32,
    /// Login codes asked for from an address: so many at once, and as many an hour. (A phone gets
    /// ten a day in any case.)
    #[arg(long, env = "LIMIT_CODES_ADDRESS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub limit_codes_address: u32,
    /// Proxies that say in X-Forwarded-For who their client is, as addresses or networks
    /// (10.0.0.0/8), separated by commas; nobody else is believed. Without them all that comes
    /// through a proxy is from one address.
    #[arg(long, env = "TRUSTED_PROXIES", value_delimiter = ',', value_parser = network)]
    pub trusted_proxies: Vec<IpNet>,
}

/// An address is a network of one.
fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse().map(|address: IpAddr| address.into());
    text.parse()
        .or_else(|_| address())
        .map_err(|_| "must be like 10.0.0.0/8 or 10.0.0.1".to_owned())
}

impl LimitFlags {
    /// The limits that are set.
    pub fn rules(&self) -> LimitRules {
        let rate = |most, period| (most > 0).then_some(Rate { most, period });
        LimitRules {
            orders_of_user: rate(self.limit_orders_user, MINUTE),
            orders_of_address: rate(self.limit_orders_address, MINUTE),
            codes_of_address: rate(self.limit_codes_address, HOUR),
            trusted_proxies: self.trusted_proxies.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_its_addresses_and_no_others() {
        let has = |range: &str, address: &str| {
            network(range).unwrap().contains(&address.parse::<IpAddr>().unwrap())
        };
        assert!(has("10.1.0.0/16", "10.1.255.3") && !has("10.1.0.0/16", "10.2.0.1"));
        assert!(has("127.0.0.1", "127.0.0.1") && !has("127.0.0.1", "127.0.0.2"));
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe80::1"));
        for bad in ["", "10.0.0.0/33", "10.0.0.0/-1", "proxy", "::/129", "10.0.0.0/"] {
            assert!(network(bad).is_err(), "{bad:?}");
        }
    }
}
