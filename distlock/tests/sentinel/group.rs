//! A Redis with replicas and sentinels, and what tests do to it.

use std::time::Duration;

use distlock::{LockName, Replication};
use testbed::{Bed, RedisSentinel, SentinelOptions, Stopwatch};

use crate::support::redisson::Service;
use crate::support::{at_once, eventually, fresh_name};

/// How soon after the promotion the new master has to be in use.
pub(crate) const FOLLOWS_WITHIN: Duration = Duration::from_secs(2);

/// How the first master is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    Killed,
    Frozen,
    /// A replica is promoted while it lives.
    Replaced,
}

/// One that is there until the bed goes, which goes last.
pub(crate) struct Group {
    pub(crate) sentinel: RedisSentinel,
    _bed: Bed,
}

impl Group {
    pub(crate) fn start() -> Self {
        Self::with(SentinelOptions::default())
    }

    pub(crate) fn with(options: SentinelOptions) -> Self {
        tokio::task::block_in_place(|| {
            let bed = Bed::start().expect("a private bed");
            let sentinel = bed.redis_sentinel(options).expect("Redis is installed");
            // A master that stands still for a moment is not replaced.
            let set = ["SENTINEL", "SET", "shop", "down-after-milliseconds", "2500"];
            for watches in sentinel.sentinels() {
                watches.command(&set).expect("a setting");
            }
            Self { sentinel, _bed: bed }
        })
    }

    pub(crate) fn act<T>(&self, act: impl FnOnce(&RedisSentinel) -> testbed::Result<T>) -> T {
        tokio::task::block_in_place(|| act(&self.sentinel)).expect("the testbed can do that")
    }

    /// What one node answers.
    pub(crate) fn ask(&self, node: usize, words: &[&str]) -> String {
        self.act(|group| group.nodes()[node].command(words))
    }

    /// What is another process as far as Redis can see.
    pub(crate) async fn process(&self) -> Service {
        Service::at(&self.sentinel.url()).await
    }

    /// One whose locks count when both replicas have them.
    pub(crate) async fn confirmed(&self) -> Service {
        Service::confirmed(&self.sentinel.url(), Replication::All { replicas: 2 }).await
    }

    /// Which replica was promoted, and when.
    pub(crate) fn lose_master(&self, loss: Loss) -> (usize, Stopwatch) {
        self.act(|group| {
            match loss {
                Loss::Killed => group.nodes()[0].kill()?,
                Loss::Frozen => group.nodes()[0].freeze()?,
                Loss::Replaced => group.fail_over()?,
            }
            group.await_promotion(0)
        })
    }

    /// How many processes are subscribed to that channel at that node.
    pub(crate) fn subscribers(&self, node: usize, channel: &str) -> usize {
        let said = self.ask(node, &["PUBSUB", "NUMSUB", channel]);
        said.lines().next_back().and_then(|count| count.parse().ok()).expect("a number")
    }

    pub(crate) fn has(&self, node: usize, name: &LockName) -> bool {
        self.ask(node, &["EXISTS", name.as_str()]) == "1"
    }
}

/// Whether a lock that is free is granted, by that node.
pub(crate) async fn grants(group: &Group, service: &Service, node: usize) -> bool {
    let name = fresh_name();
    let Ok(guard) = service.locks.lock(&name, &at_once()).await else { return false };
    let is_there = group.has(node, &name);
    guard.release().await.is_ok() && is_there
}

/// Waits until it is so; how long that took from then on.
pub(crate) async fn follows(
    what: &str,
    since: Stopwatch,
    holds: impl AsyncFnMut() -> bool,
) -> Duration {
    eventually(what, holds).await;
    since.elapsed()
}
