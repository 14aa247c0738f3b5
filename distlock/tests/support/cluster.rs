//! A Redis Cluster, and a look at each of its nodes.

use std::sync::{Arc, OnceLock};

use distlock::{LockKind, LockName, Locks, RedisServer};
use testbed::{Bed, Redis, RedisCluster};

use super::{connect, fresh_name, locks_of};

/// A cluster that is there until the bed goes, which goes last.
pub(crate) struct Nodes {
    pub(crate) cluster: RedisCluster,
    _bed: Bed,
}

/// Three masters that no test moves or kills; the testbed ends them with the process.
pub(crate) fn shared() -> &'static Nodes {
    static NODES: OnceLock<Nodes> = OnceLock::new();
    NODES.get_or_init(|| Nodes::start(0))
}

impl Nodes {
    /// Three masters, each with this number of replicas.
    pub(crate) fn start(replicas_each: u16) -> Self {
        tokio::task::block_in_place(|| {
            let bed = Bed::start().expect("a private bed");
            let cluster = bed.redis_cluster(3, replicas_each).expect("Redis is installed");
            Self { cluster, _bed: bed }
        })
    }

    /// Three masters that are reached by TLS as well.
    pub(crate) fn start_with_tls() -> Self {
        tokio::task::block_in_place(|| {
            let bed = Bed::start().expect("a private bed");
            let cluster = bed.redis_cluster_with_tls(3).expect("Redis is installed");
            Self { cluster, _bed: bed }
        })
    }

    /// What is another process as far as the cluster can see.
    pub(crate) async fn process(&self) -> RedisServer {
        connect(&self.cluster.url()).await
    }

    pub(crate) async fn locks(&self, kind: LockKind) -> Locks {
        locks_of(kind, self.process().await)
    }

    /// A name whose lock is at the first home that has that number.
    pub(crate) fn name_at(&self, home: usize) -> LockName {
        let here = |name: &LockName| {
            let at = self.act(|cluster| cluster.first_home(name.as_str()));
            at == home
        };
        std::iter::repeat_with(fresh_name).find(here).expect("it never ends")
    }

    /// A name at each master.
    pub(crate) fn names(&self) -> [LockName; 3] {
        [0, 1, 2].map(|home| self.name_at(home))
    }

    pub(crate) fn act<T>(&self, act: impl FnOnce(&RedisCluster) -> testbed::Result<T>) -> T {
        tokio::task::block_in_place(|| act(&self.cluster)).expect("the testbed can do that")
    }

    /// What one node answers.
    pub(crate) fn ask(&self, node: usize, words: &[&str]) -> String {
        self.act(|cluster| cluster.masters()[node].command(words))
    }

    /// How many processes are subscribed to that channel at that node.
    pub(crate) fn subscribers(&self, node: usize, channel: &str) -> usize {
        let said = self.ask(node, &["PUBSUB", "SHARDNUMSUB", channel]);
        said.lines().next_back().and_then(|count| count.parse().ok()).expect("a number")
    }

    /// How often the nodes have carried out that command, also in scripts.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let calls = |node: &Arc<Redis>| {
            let stats = node.command(&["INFO", "commandstats"])?;
            let prefix = format!("cmdstat_{command}:calls=");
            let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
            let count = line.and_then(|line| line.split(',').next()?.parse::<u64>().ok());
            Ok(count.unwrap_or(0))
        };
        self.act(|cluster| cluster.masters().iter().map(calls).sum())
    }
}
