//! One lock as the server knows it: the keys of the kinds that are made of sorted sets.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::RedisConnection;
use distlock::{Lease, LockName, LockOptions, Locks, Release};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, PushInfo, PushKind};
use tokio::task::JoinHandle;

use super::{LONG, connect, eventually, fresh_name, server};

/// Clearly less than any wait in these tests, with room for a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(5);
/// How long a waiter counts as alive after a look.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1500);
/// How often a waiter looks at least.
pub(crate) const LOOK: Duration = Duration::from_millis(500);

/// Waits so long for a lock that is renewed.
pub(crate) fn waiting(wait: Duration) -> LockOptions {
    LockOptions::new(wait, Lease::Renewed(LONG))
}

pub(crate) fn at_once() -> LockOptions {
    waiting(Duration::ZERO)
}

pub(crate) fn patient() -> LockOptions {
    waiting(Duration::from_secs(30))
}

/// The numbers of waiters, as they got the lock.
pub(crate) type Order = Arc<Mutex<Vec<usize>>>;

#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) name: LockName,
    pub(crate) connection: RedisConnection,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::at(server().url()).await
    }

    pub(crate) async fn at(url: &str) -> Self {
        Self { name: fresh_name(), connection: connect(url).await.connection() }
    }

    pub(crate) fn key(&self, prefix: &str) -> String {
        format!("{prefix}:{{{}}}", self.name)
    }

    /// The members of a sorted set.
    pub(crate) async fn members(&self, prefix: &str) -> Vec<String> {
        self.connection.clone().zrange(self.key(prefix), 0, -1).await.expect("an answer")
    }

    pub(crate) async fn wait_for_members(&self, prefix: &str, count: usize) {
        let what = format!("{count} members of {prefix}");
        eventually(&what, async || self.members(prefix).await.len() == count).await;
    }

    /// Adds a member that no process stands behind, to end so long from now.
    pub(crate) async fn add_member(&self, prefix: &str, member: &str, ends: Duration) {
        let mut connection = self.connection.clone();
        let (seconds, micros): (u64, u64) =
            redis::cmd("TIME").query_async(&mut connection).await.expect("an answer");
        let ends = u128::from(seconds * 1000 + micros / 1000) + ends.as_millis();
        let added = connection.zadd::<_, _, _, ()>(self.key(prefix), member, ends.to_string());
        added.await.expect("an answer");
    }

    pub(crate) async fn delete(&self, prefix: &str) {
        self.connection.clone().del::<_, ()>(self.key(prefix)).await.expect("an answer");
    }

    /// All messages on channels that begin so, from now on.
    pub(crate) async fn messages(&self, channel: &str) -> Messages {
        Messages::on(&format!("{}*", self.key(channel))).await
    }

    /// How many wait, whatever the kind.
    pub(crate) async fn waiters(&self) -> usize {
        let (fair, writers) = ("distlock_fair_waiters", "distlock_rw_writers");
        let mut count = 0;
        for prefix in [fair, writers, "distlock_rw_readers"] {
            count += self.members(prefix).await.len();
        }
        count
    }

    /// What is there, but for latches, which end by themselves.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let mut connection = self.connection.clone();
        let pattern = format!("*{{{}}}*", self.name);
        let mut keys: Vec<String> = connection.keys(pattern).await.expect("an answer");
        for latch in keys.extract_if(.., |key| key.contains("latch")) {
            let ms: i64 = connection.pttl(&latch).await.expect("an answer");
            assert!(ms <= 10_000 && ms != -1, "{latch} ends after {ms} ms");
        }
        keys
    }

    /// A task that waits for the lock, tells when it has it, and frees it.
    pub(crate) fn waiter(&self, locks: &Locks, number: usize, order: &Order) -> JoinHandle<()> {
        let (locks, name, order) = (locks.clone(), self.name.clone(), Arc::clone(order));
        tokio::spawn(async move {
            let guard = locks.lock(&name, &patient()).await.expect("the lock");
            order.lock().expect("no panic").push(number);
            assert_eq!(guard.release().await.expect("a release"), Release::Released);
        })
    }
}

/// The messages on all channels of a pattern.
pub(crate) struct Messages {
    seen: Arc<Mutex<Vec<(String, String)>>>,
    _connection: MultiplexedConnection,
}

impl Messages {
    pub(crate) async fn on(pattern: &str) -> Self {
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let seeing = Arc::clone(&seen);
        let push = move |push: PushInfo| -> Result<(), std::convert::Infallible> {
            let mut text = push.data.into_iter().map(redis::from_redis_value::<String>);
            if push.kind == PushKind::PMessage
                && let (_, Some(Ok(channel)), Some(Ok(message))) =
                    (text.next(), text.next(), text.next())
            {
                seeing.lock().expect("no panic").push((channel, message));
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_push_sender(push)
            .set_connection_timeout(Some(SOON))
            .set_response_timeout(Some(SOON));
        let client = redis::Client::open(format!("{}?protocol=resp3", server().url()));
        let client = client.expect("a URL");
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connection.await.expect("a connection");
        connection.psubscribe(pattern).await.expect("a subscription");
        Self { seen, _connection: connection }
    }

    /// Channel and message, of all there were so far.
    pub(crate) fn seen(&self) -> Vec<(String, String)> {
        self.seen.lock().expect("no panic").clone()
    }
}
