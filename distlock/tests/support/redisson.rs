//! What the tests of `redisson` share.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::RedisConnection;
use distlock::{
    Backends, Lease, LockKind, LockName, LockOptions, Locks, RedisServer, Replication, locker,
};
use redis::{AsyncCommands, FromRedisValue, ToRedisArgs};
use testbed::{Bed, Proxy, Redis, RedisOptions};

use super::{connect, connect_hasty};

/// What is a process of its own as far as Redis can see.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) server: RedisServer,
    pub(crate) locks: Locks,
}

impl Service {
    pub(crate) async fn at(url: &str) -> Self {
        Self::confirmed(url, Replication::None).await
    }

    pub(crate) async fn confirmed(url: &str, replication: Replication) -> Self {
        Self::on(connect(url).await.with_replication(replication))
    }

    pub(crate) fn on(server: RedisServer) -> Self {
        let backends = Backends { redis: Some(server.clone()), ..Backends::default() };
        let locks = Locks::new(locker(LockKind::Redisson, &backends).expect("a locker"));
        Self { server, locks }
    }
}

/// A lock that the watchdog keeps.
pub(crate) fn kept(wait: Duration, lease: Duration) -> LockOptions {
    LockOptions::new(wait, Lease::Renewed(lease))
}

/// A Redis of one's own, with a way to it that can be broken. The bed goes last.
pub(crate) struct OwnServer {
    pub(crate) redis: Redis,
    pub(crate) proxy: Proxy,
    _bed: Bed,
}

impl OwnServer {
    pub(crate) fn start() -> Self {
        Self::with(RedisOptions::default())
    }

    pub(crate) fn with(options: RedisOptions) -> Self {
        tokio::task::block_in_place(|| {
            let bed = Bed::start().expect("a private bed");
            let redis = bed.redis(options).expect("Redis is installed");
            let proxy = Proxy::before(redis.addr()).expect("a port");
            Self { redis, proxy, _bed: bed }
        })
    }

    /// Another process, which goes through the proxy.
    pub(crate) async fn service(&self) -> Service {
        Service::at(&self.proxy.instead_of(self.redis.addr(), self.redis.url())).await
    }

    /// One that takes half a second without an answer for silence.
    pub(crate) async fn hasty(&self) -> Service {
        let url = self.proxy.instead_of(self.redis.addr(), self.redis.url());
        Service::on(connect_hasty(&url).await)
    }

    pub(crate) async fn raw(&self) -> RawRedis {
        RawRedis::at(self.redis.url()).await
    }

    pub(crate) fn act(&self, act: impl FnOnce(&Redis) -> testbed::Result<()>) {
        tokio::task::block_in_place(|| act(&self.redis)).expect("the testbed can do that");
    }
}

/// What another client of the server sees and does.
#[derive(Clone)]
pub(crate) struct RawRedis(pub(crate) RedisConnection);

impl RawRedis {
    pub(crate) async fn at(url: &str) -> Self {
        Self(connect(url).await.connection())
    }

    pub(crate) async fn command<T: FromRedisValue>(&self, words: impl ToRedisArgs) -> T {
        let mut command = redis::Cmd::new();
        command.arg(words).query_async(&mut self.0.clone()).await.expect("an answer")
    }

    pub(crate) async fn holds(&self, name: &LockName) -> BTreeMap<String, u64> {
        self.0.clone().hgetall(name.as_str()).await.expect("an answer")
    }

    /// How long the key is there; `None` if it is not, or has no end.
    pub(crate) async fn lease(&self, name: &LockName) -> Option<Duration> {
        let ms: i64 = self.0.clone().pttl(name.as_str()).await.expect("an answer");
        u64::try_from(ms).ok().map(Duration::from_millis)
    }

    /// All keys in which that name stands.
    pub(crate) async fn keys(&self, name: &LockName) -> Vec<String> {
        self.0.clone().keys(format!("*{name}*")).await.expect("an answer")
    }

    /// What Redisson writes for a lock of another process.
    pub(crate) async fn hold_as_redisson(&self, name: &LockName, lease: Duration) {
        let owner = "285475da-9152-4c83-822a-67ee2f116a79:52";
        self.command::<()>(&["HSET", name.as_str(), owner, "1"]).await;
        let ms = lease.as_millis().to_string();
        self.command::<()>(&["PEXPIRE", name.as_str(), &ms]).await;
    }

    /// What Redisson does to free it; how many were told.
    pub(crate) async fn release_as_redisson(&self, name: &LockName) -> usize {
        self.command::<()>(&["DEL", name.as_str()]).await;
        self.command(&["PUBLISH", &channel(name), "0"]).await
    }
}

/// The channel of a lock whose name has no braces.
pub(crate) fn channel(name: &LockName) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}
