//! How often somebody may ask: a user, an address. Over all replicas, because the counts are in
//! Redis; nothing is asked of it where no limit is set.
//!
//! The address is the connection's. Only what a trusted proxy says of its client counts instead: of
//! `X-Forwarded-For`, which everybody may send, the last address that is no trusted proxy's. Of an
//! IPv6 address the first 64 bits count, for one household has all the rest of them.
//!
//! A Redis that does not answer refuses what is limited (503): neither a purchase nor a login code
//! can do without it anyhow, and a limit that ends with a server is an invitation to end it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use ipnet::IpNet;

use super::Shared;
use super::error::ApiError;
use crate::domain::UserId;
use crate::store::{self, Rate, StoreError};

/// How often, of each sort; nothing is limited that has none.
#[derive(Debug, Clone, Default)]
pub struct LimitRules {
    /// Purchases of a user.
    pub orders_of_user: Option<Rate>,
    /// Purchases from an address.
    pub orders_of_address: Option<Rate>,
    /// Login codes asked for by an address. (Of a phone there are ten a day.)
    pub codes_of_address: Option<Rate>,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
}

impl LimitRules {
    /// Whether purchases are counted.
    pub(super) fn limit_orders(&self) -> bool {
        self.orders_of_user.is_some() || self.orders_of_address.is_some()
    }

    /// Whether anybody's address has to be known.
    pub fn need_addresses(&self) -> bool {
        self.orders_of_address.is_some() || self.codes_of_address.is_some()
    }
}

/// The limits and where they are counted.
pub struct RateLimits {
    /// How often.
    pub rules: LimitRules,
    /// Where it is counted.
    pub counts: store::Limits,
}

/// Where a request's connection comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Somebody whose address may ask for a login code now.
pub(super) struct MayAskForCode;

impl FromRequestParts<Shared> for MayAskForCode {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Shared) -> Result<Self, ApiError> {
        let RateLimits { rules, .. } = &api.limits;
        let wait = api.limits.by_address("codes", rules.codes_of_address, parts).await?;
        refuse(wait).map(|()| Self)
    }
}

impl RateLimits {
    /// One more purchase. Both counts are asked for in one round trip.
    pub(super) async fn order(&self, user: UserId, asking: &Parts) -> Result<(), ApiError> {
        let LimitRules { orders_of_user, orders_of_address, .. } = &self.rules;
        let by_user = async {
            let Some(rate) = *orders_of_user else { return Ok(None) };
            self.counts.take(&format!("orders:user:{user}"), rate).await
        };
        let by_address = self.by_address("orders", *orders_of_address, asking);
        let (by_user, by_address) = tokio::join!(by_user, by_address);
        refuse(by_user?.max(by_address?))
    }

    async fn by_address(
        &self,
        what: &str,
        rate: Option<Rate>,
        asking: &Parts,
    ) -> Result<Option<Duration>, StoreError> {
        let Some(rate) = rate else { return Ok(None) };
        let Some(address) = self.address(asking) else { return Ok(None) };
        self.counts.take(&format!("{what}:address:{}", household(address)), rate).await
    }

    /// The client's address; `None` only if the server does not tell whose connection it is.
    fn address(&self, asking: &Parts) -> Option<IpAddr> {
        let Peer(peer) = asking.extensions.get()?;
        let is_trusted =
            |address: &IpAddr| self.rules.trusted_proxies.iter().any(|one| one.contains(address));
        let mut client = peer.ip().to_canonical();
        let said = asking.headers.get_all("x-forwarded-for").iter();
        let said: Vec<_> = said.filter_map(|line| line.to_str().ok()).collect();
        let mut hops = said.iter().rev().flat_map(|line| line.rsplit(',')).map(str::trim);
        while is_trusted(&client) {
            // What is no address says nothing; then the proxy itself is all that is known.
            let Some(hop) = hops.next().and_then(|hop| hop.parse::<IpAddr>().ok()) else { break };
            client = hop.to_canonical();
        }
        Some(client)
    }
}

fn household(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) >> 64 << 64).into(),
    }
}

fn refuse(wait: Option<Duration>) -> Result<(), ApiError> {
    wait.map_or(Ok(()), |wait| {
        let retry_after_s = wait.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX);
        Err(ApiError::TooManyRequests { retry_after_s })
    })
}
