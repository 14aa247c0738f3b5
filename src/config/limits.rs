//! How often somebody may ask.

use std::time::Duration;

use clap::Args;

use crate::domain::Network;
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
    #[arg(long, env = "TRUSTED_PROXIES", value_delimiter = ',', value_parser = Network::parse)]
    pub trusted_proxies: Vec<Network>,
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
