//! Rate limits per user, per address and per phone, over all replicas.
//!
//! The counts are in Redis, which is not asked where no limit is set.
//!
//! The address is that of the connection. If it is a trusted proxy's, the last address in
//! `X-Forwarded-For` that is not a trusted proxy's counts instead. Of an IPv6 address the first 64
//! bits count, because one household has the rest.
//!
//! If Redis does not answer, limited requests are refused with 503. Purchases and login codes need
//! Redis anyway, and a limit that ends with a server invites attacks on that server.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use ipnet::IpNet;

use super::ApiState;
use super::error::ApiError;
use crate::domain::{Phone, UserId};
use crate::store::{self, Rate, StoreError};

/// The rate of each limit; `None` is no limit.
#[derive(Debug, Clone)]
pub struct LimitRules {
    /// Purchases of a user.
    pub orders_of_user: Option<Rate>,
    /// Purchases from an address.
    pub orders_of_address: Option<Rate>,
    /// Login codes asked for by an address.
    pub codes_of_address: Option<Rate>,
    /// Login codes of a phone.
    pub codes_of_phone: Rate,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
}

impl LimitRules {
    /// Whether purchases are counted.
    pub(super) fn limit_orders(&self) -> bool {
        self.orders_of_user.is_some() || self.orders_of_address.is_some()
    }

    /// Whether any limit needs the client's address.
    pub fn need_addresses(&self) -> bool {
        self.orders_of_address.is_some() || self.codes_of_address.is_some()
    }
}

/// The limits and where they are counted.
pub struct RateLimits {
    /// The rate of each limit.
    pub rules: LimitRules,
    /// The counts in Redis.
    pub counts: store::RateLimiter,
}

/// The address at the other end of a request's connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Passes requests for a login code that are within the limit of their address.
pub(super) struct LoginCodeRateLimit {
    /// `None` where addresses are not limited.
    address: Option<IpAddr>,
    /// The address's count of this request.
    counted: Option<(String, Rate)>,
}

/// The counts that one login code takes: the phone's, and the address's share of the phone's.
pub(super) struct CountedCode(Vec<(String, Rate)>);

impl CountedCode {
    /// Adds the count of the address, for a code that could not be delivered.
    pub(super) fn with_address(mut self, asking: LoginCodeRateLimit) -> Self {
        self.0.extend(asking.counted);
        self
    }
}

impl FromRequestParts<ApiState> for LoginCodeRateLimit {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, ApiError> {
        // First, so that a code that cannot be sent counts against no limit.
        if !api.outbox.is_usable() {
            return Err(ApiError::LoginUnavailable);
        }
        let rate = api.limits.rules.codes_of_address;
        refuse(api.limits.by_address("codes", rate, parts).await?)?;
        let address = rate.and_then(|_| api.limits.address(parts));
        let counted = rate.zip(address).map(|(rate, address)| (of_address("codes", address), rate));
        Ok(Self { address, counted })
    }
}

impl RateLimits {
    /// Counts a purchase; asks for both counts in one round trip. What one limit refuses does not
    /// count against the other: users who share an address must not use up each other's.
    pub(super) async fn order(&self, user: UserId, asking: &Parts) -> Result<(), ApiError> {
        let LimitRules { orders_of_user, orders_of_address, .. } = self.rules;
        let user = orders_of_user.map(|rate| (format!("orders:user:{user}"), rate));
        let address = orders_of_address.and_then(|rate| {
            let address = self.address(asking)?;
            Some((of_address("orders", address), rate))
        });
        let (by_user, by_address) =
            tokio::join!(self.take(user.as_ref()), self.take(address.as_ref()));
        let (by_user, by_address) = (by_user?, by_address?);
        let counted = match (by_user, by_address) {
            (Some(_), None) => address,
            (None, Some(_)) => user,
            _ => None,
        };
        if let Some((name, rate)) = counted
            && let Err(error) = self.counts.give_back(&name, rate).await
        {
            tracing::warn!(%error, "refused purchase stays counted");
        }
        refuse(by_user.max(by_address))
    }

    /// Counts one more, where there is such a limit.
    async fn take(&self, count: Option<&(String, Rate)>) -> Result<Option<Duration>, StoreError> {
        match count {
            Some((name, rate)) => self.counts.take(name, *rate).await,
            None => Ok(None),
        }
    }

    /// Counts a login code of that phone. One address gets half of a phone's codes, so that it
    /// cannot use up all of them.
    pub(super) async fn count_code(
        &self,
        phone: &Phone,
        asking: &LoginCodeRateLimit,
    ) -> Result<CountedCode, ApiError> {
        let rate = self.rules.codes_of_phone;
        let name = format!("codes:phone:{}", phone.as_str());
        let share = asking.address.map(|address| {
            let most = (rate.most / 2).max(1);
            let period = rate.interval() * 2 * most;
            (format!("{name}:address:{}", household(address)), Rate { most, period })
        });
        let mut counted = CountedCode(Vec::new());
        // The share first: a code that it refuses must not count against the phone.
        for (name, rate) in share.into_iter().chain([(name, rate)]) {
            match self.counts.take(&name, rate).await? {
                None => counted.0.push((name, rate)),
                Some(wait) => {
                    self.give_back(counted).await;
                    return Err(ApiError::TooManyCodes { wait, rate });
                }
            }
        }
        Ok(counted)
    }

    /// Gives back the counts of a code that did not reach its phone.
    pub(super) async fn give_back(&self, counted: CountedCode) {
        for (name, rate) in counted.0 {
            if let Err(error) = self.counts.give_back(&name, rate).await {
                tracing::warn!(%error, "unsent login code stays counted");
            }
        }
    }

    async fn by_address(
        &self,
        what: &str,
        rate: Option<Rate>,
        asking: &Parts,
    ) -> Result<Option<Duration>, StoreError> {
        let Some(rate) = rate else { return Ok(None) };
        let Some(address) = self.address(asking) else { return Ok(None) };
        self.counts.take(&of_address(what, address), rate).await
    }

    /// The client's address; `None` only if the server does not record the connection's peer.
    fn address(&self, asking: &Parts) -> Option<IpAddr> {
        let Peer(peer) = asking.extensions.get()?;
        let is_trusted =
            |address: &IpAddr| self.rules.trusted_proxies.iter().any(|one| one.contains(address));
        let mut client = peer.ip().to_canonical();
        let said = asking.headers.get_all("x-forwarded-for").iter().rev();
        let mut hops = said.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
        while is_trusted(&client) {
            // What is no address ends the search, also a line that is no text; the proxy's own
            // address counts.
            let Some(hop) = hops.next().and_then(|hop| hop.trim().parse::<IpAddr>().ok()) else {
                break;
            };
            client = hop.to_canonical();
        }
        Some(client)
    }
}

/// The name of an address's count.
fn of_address(what: &str, address: IpAddr) -> String {
    format!("{what}:address:{}", household(address))
}

fn household(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) >> 64 << 64).into(),
    }
}

fn refuse(wait: Option<Duration>) -> Result<(), ApiError> {
    wait.map_or(Ok(()), |wait| {
        Err(ApiError::TooManyRequests { retry_after_s: whole_seconds(wait) })
    })
}

/// A wait for `Retry-After`, rounded up.
pub(super) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
}
