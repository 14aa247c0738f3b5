//! Which server is the master of a service, as its sentinels say.
//!
//! How it works: all sentinels of the address are asked at once. More than half of them have to
//! answer, so a sentinel that is cut off with an old master is not believed. The answer with the
//! highest configuration epoch counts: the sentinels elect one of them for each epoch, and the
//! others learn from it up to 2 s later. An epoch that was seen is not left for a lower one, unless
//! every sentinel says so (they were set up anew).
//!
//! `redis::sentinel` believes the first sentinel that answers, and ignores epochs.
//!
//! A sentinel is asked without a login, and with the one of the address if it wants one.
//!
//! Bounds: one connection per sentinel; a sentinel has [`ANSWER_TIMEOUT`]. Source: "Guidelines for
//! Redis clients with support for Redis Sentinel". Tests: `tests/sentinel`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult, Value, from_redis_value,
};
use tokio::time::timeout;

/// How long a sentinel may take to answer, connection included.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// The sentinels of an address.
pub(super) struct Sentinels {
    service: String,
    links: Vec<Sentinel>,
    /// The highest epoch that was believed.
    epoch: AtomicU64,
}

struct Sentinel {
    /// Without a login, and with it.
    clients: [Client; 2],
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// What a sentinel says of the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MasterClaim {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) epoch: u64,
}

impl Sentinels {
    /// Sends nothing yet. Of each sentinel a client without a login, and one with it.
    pub(super) fn new(service: String, clients: Vec<[Client; 2]>) -> Self {
        let sentinel = |clients| Sentinel { clients, connection: Mutex::default() };
        let links = clients.into_iter().map(sentinel).collect();
        Self { service, links, epoch: AtomicU64::new(0) }
    }

    pub(super) fn service(&self) -> &str {
        &self.service
    }

    /// The master that is to be believed.
    pub(super) async fn master(&self) -> RedisResult<MasterClaim> {
        let asked = self.links.iter().map(|sentinel| async {
            let answer = timeout(ANSWER_TIMEOUT, sentinel.ask(&self.service)).await;
            answer.unwrap_or_else(|_| Err(no_master("a sentinel did not answer in time")))
        });
        let claim = choose(join_all(asked).await, self.epoch.load(Ordering::Relaxed))?;
        self.epoch.store(claim.epoch, Ordering::Relaxed);
        Ok(claim)
    }
}

impl Sentinel {
    async fn ask(&self, service: &str) -> RedisResult<MasterClaim> {
        let kept = self.kept().take();
        if let Some(connection) = kept
            && let Ok(claim) = self.ask_on(connection, service).await
        {
            return Ok(claim);
        }
        let [without_login, with_login] = &self.clients;
        match self.ask_anew(without_login, service).await {
            Err(error) if error.code() == Some("NOAUTH") => {
                self.ask_anew(with_login, service).await
            }
            answer => answer,
        }
    }

    async fn ask_anew(&self, client: &Client, service: &str) -> RedisResult<MasterClaim> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT));
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        self.ask_on(connection, service).await
    }

    /// Keeps the connection if it answers. The epoch is asked for first: it rises before the other
    /// fields of `MASTER` name the promoted replica, and with the address that is asked for here.
    async fn ask_on(
        &self,
        mut connection: MultiplexedConnection,
        service: &str,
    ) -> RedisResult<MasterClaim> {
        let mut ask = redis::pipe();
        ask.cmd("SENTINEL").arg("MASTER").arg(service);
        ask.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
        let answers = connection.send_packed_commands(&ask, 0, 2).await?;
        let answers: RedisResult<Vec<_>> = answers.into_iter().map(Value::extract_error).collect();
        let (fields, (host, port)): (HashMap<String, String>, (String, u16)) =
            from_redis_value(Value::Array(answers?))?;
        *self.kept() = Some(connection);
        let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok());
        let epoch = epoch.ok_or_else(|| no_master("a sentinel names no configuration epoch"))?;
        Ok(MasterClaim { host, port, epoch })
    }

    fn kept(&self) -> MutexGuard<'_, Option<MultiplexedConnection>> {
        // It is set or taken in one step.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn choose(answers: Vec<RedisResult<MasterClaim>>, known_epoch: u64) -> RedisResult<MasterClaim> {
    let asked = answers.len();
    let (mut claims, mut failure) = (Vec::new(), None);
    for answer in answers {
        match answer {
            Ok(claim) => claims.push(claim),
            Err(error) => failure = Some(error),
        }
    }
    let answered = claims.len();
    if answered <= asked / 2 {
        let why = failure.map_or_else(String::new, |error| format!(": {error}"));
        let count = format!("{answered} of {asked} sentinels name the master{why}");
        return Err(no_master(count));
    }
    let newest = claims.into_iter().max_by_key(|claim| claim.epoch);
    let newest = newest.filter(|claim| claim.epoch >= known_epoch || answered == asked);
    newest.ok_or_else(|| no_master("the sentinels that answer name an earlier master"))
}

/// Nothing was sent to a master: none is known.
pub(super) fn no_master(why: impl Into<String>) -> RedisError {
    (ErrorKind::MasterNameNotFoundBySentinel, "no master", why.into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What sentinels answer, by port and epoch, and how many do not.
    fn answers(claims: &[(u16, u64)], silent: usize) -> Vec<RedisResult<MasterClaim>> {
        let claim = |(port, epoch): &(u16, u64)| {
            Ok(MasterClaim { host: "one".into(), port: *port, epoch: *epoch })
        };
        let silent = (0..silent).map(|_| Err(no_master("cut off")));
        claims.iter().map(claim).chain(silent).collect()
    }

    #[test]
    fn the_newest_claim_of_a_majority_counts() {
        let newer = choose(answers(&[(1, 3), (2, 4), (1, 3)], 0), 3).unwrap();
        assert_eq!((newer.port, newer.epoch), (2, 4));
        assert_eq!(choose(answers(&[(1, 3), (1, 3)], 1), 3).unwrap().port, 1);
        let cut_off = choose(answers(&[(1, 3)], 2), 0).unwrap_err();
        assert!(cut_off.to_string().contains("1 of 3 sentinels name the master"), "{cut_off}");
        assert!(choose(answers(&[(1, 3)], 1), 0).is_err(), "half is no majority");
    }

    #[test]
    fn an_earlier_master_is_named_by_all_sentinels_or_not_believed() {
        assert!(choose(answers(&[(1, 3), (1, 3)], 1), 4).is_err());
        assert_eq!(choose(answers(&[(1, 0), (1, 0)], 0), 4).unwrap().epoch, 0);
    }
}
