//! A look at what the service left in Redis.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig};

use crate::support::eventually;

/// How long the test's own connections wait for Redis, which may stand still.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection of a test's own.
pub(crate) async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("a Redis URL");
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER_TIMEOUT))
        .set_response_timeout(Some(ANSWER_TIMEOUT));
    client.get_multiplexed_async_connection_with_config(&config).await.expect("Redis")
}

/// A connection of the test's own.
pub(crate) struct RedisSide(MultiplexedConnection);

impl RedisSide {
    pub(crate) async fn connect(url: &str) -> Self {
        Self(connect(url).await)
    }

    /// Whether the lock of that user's purchases is there.
    pub(crate) async fn has_lock(&self, user: u64) -> bool {
        self.0.clone().exists(lock_of(user)).await.expect("an answer")
    }

    /// Waits until the lock of that user's purchases is given back, which may be after the answer.
    pub(crate) async fn until_given_back(&self, user: u64) {
        eventually("the lock is given back", async || !self.has_lock(user).await).await;
    }

    /// How long the lock of that user's purchases is there; `None` if it is not.
    pub(crate) async fn lease(&self, user: u64) -> Option<Duration> {
        let ms: i64 = self.0.clone().pttl(lock_of(user)).await.expect("an answer");
        u64::try_from(ms).ok().map(Duration::from_millis)
    }

    /// Deletes the lock of that user's purchases behind its holder's back.
    pub(crate) async fn take_away(&self, user: u64) {
        let deleted: u64 = self.0.clone().del(lock_of(user)).await.expect("an answer");
        assert_eq!(deleted, 1, "there was no lock");
    }

    /// Locks of any kind.
    pub(crate) async fn locks(&self) -> Vec<String> {
        self.0.clone().keys("lock:*").await.expect("an answer")
    }

    /// Makes the server forget all scripts.
    pub(crate) async fn flush_scripts(&self) {
        let mut connection = self.0.clone();
        redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut connection).await.expect("an answer");
    }

    /// How often the server was asked for a script that it did not know.
    pub(crate) async fn unknown_scripts(&self) -> u64 {
        let mut connection = self.0.clone();
        let info: String =
            redis::cmd("INFO").arg("errorstats").query_async(&mut connection).await.expect("INFO");
        let count = info.lines().find_map(|line| line.strip_prefix("errorstat_NOSCRIPT:count="));
        count.map_or(0, |count| count.trim().parse().expect("a number"))
    }
}

fn lock_of(user: u64) -> String {
    format!("lock:order:{user}")
}
