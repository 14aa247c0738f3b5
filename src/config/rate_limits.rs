//! Flags of rate limits.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;

use crate::http::LimitRules;
use crate::store::Rate;

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

/// Rate limits of users and addresses.
#[derive(Debug, Args)]
#[command(next_help_heading = "Rate limits, over all replicas (0: none; 429 with Retry-After)")]
pub struct LimitFlags {
    /// Purchases of one user a minute, with a burst of as many: 0 to 1000000. Set it against
    /// scripts that retry.
    #[arg(long, env = "LIMIT_ORDERS_USER", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub limit_orders_user: u32,
    /// Purchases from one address (IPv6: one /64) a minute, with a burst of as many: 0 to 1000000.
    /// Many users may share an address, so set it well above --limit-orders-user.
    #[arg(long, env = "LIMIT_ORDERS_ADDRESS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub limit_orders_address: u32,
    /// Requests for login codes from one address an hour, with a burst of as many: 0 to 1000000.
    /// --login-codes-at-once and --login-codes-a-day limit the codes of a phone in any case.
    #[arg(long, env = "LIMIT_CODES_ADDRESS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub limit_codes_address: u32,
    /// Proxies whose X-Forwarded-For is trusted: addresses or networks (10.0.0.0/8), separated by
    /// commas. Set it behind a proxy: otherwise all its clients count as one address.
    #[arg(long, env = "TRUSTED_PROXIES", value_delimiter = ',', value_parser = network)]
    pub trusted_proxies: Vec<IpNet>,
}

/// Parses a network; an address is a network of one.
fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse().map(|address: IpAddr| address.into());
    text.parse()
        .or_else(|_| address())
        .map_err(|_| "must be like 10.0.0.0/8 or 10.0.0.1".to_owned())
}

impl LimitFlags {
    /// The limits that are set, and that of a phone's login codes.
    pub fn rules(&self, codes_of_phone: Rate) -> LimitRules {
        let rate = |most, period| (most > 0).then_some(Rate { most, period });
        LimitRules {
            orders_of_user: rate(self.limit_orders_user, MINUTE),
            orders_of_address: rate(self.limit_orders_address, MINUTE),
            codes_of_address: rate(self.limit_codes_address, HOUR),
            codes_of_phone,
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
