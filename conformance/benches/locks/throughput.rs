//! Uncontended locks of this library: how many a second, and what each costs.

use std::time::Duration;

use conformance::{Addresses, Home, Servers, home, warm_up};
use distlock::{BoxFuture, LockError, LockKind, LockName, LockOptions, Locks, locker};
use loadtest_measure::error::Result;
use loadtest_measure::processes::NamedProcess;
use tokio::task::coop::consume_budget;

use crate::cell::{Cell, Slice, broken, together};
use crate::groups::Stage;

/// What a holder that died would keep a lock for.
const LEASE: Duration = Duration::from_millis(LEASE_MS);
pub(crate) const LEASE_MS: u64 = 30_000;
/// Long enough for the last waiter in a queue of the same process.
pub(crate) const WAIT: Duration = Duration::from_secs(10);
/// The kind whose script a server may have a command for.
const KIND_BY_SCRIPT: LockKind = LockKind::LuaRelease;
/// Connections to the database beyond one for each task.
const SPARE: u32 = 8;

/// The key that one task alone takes again and again: kinds share no names.
pub(crate) fn name(what: &str, task: usize) -> String {
    format!("lock:{what}:{task}")
}

async fn connect(kind: LockKind, addresses: &Addresses) -> std::result::Result<Locks, LockError> {
    let locks = Locks::new(locker(kind, &addresses.connect().await?)?);
    warm_up(&locks).await?;
    Ok(locks)
}

/// The processes that a lock of that kind lives in.
pub(crate) fn servers_of(servers: &Servers, kind: LockKind) -> Vec<NamedProcess> {
    match home(kind) {
        Home::Process => vec![],
        Home::Redis => vec![("us of redis", servers.redis().pid())],
        Home::IndependentRedis => {
            let all = servers.independent_redis().iter();
            all.map(|redis| ("us of redis", redis.pid())).collect()
        }
        Home::Database => vec![("us of database", servers.database().pid())],
        Home::Etcd => vec![("us of etcd", servers.etcd().pid())],
        Home::Nats => vec![("us of nats", servers.nats().pid())],
        Home::ZooKeeper => vec![("us of zookeeper", servers.zookeeper().pid())],
    }
}

/// Tasks that each take a lock and release it, again and again.
pub(crate) struct UncontendedLocks {
    locks: Locks,
    names: Vec<LockName>,
    options: LockOptions,
    processes: Vec<NamedProcess>,
}

impl UncontendedLocks {
    /// A task for each of these keys, for locks of that kind: renewed where the kind renews.
    /// Starts their servers.
    pub(crate) fn of(stage: &Stage, kind: LockKind, keys: Vec<String>) -> Result<Self> {
        Self::at(stage, stage.servers.addresses(kind), kind, keys)
    }

    /// `lua-release` of a user of Redis that may not call the command which compares and deletes.
    /// So a script does that.
    pub(crate) fn by_script(stage: &Stage, keys: Vec<String>) -> Result<Self> {
        let redis = stage.servers.redis();
        let rules = ["ACL", "SETUSER", "by-script", "on", ">by-script", "~*", "&*", "+@all"];
        redis.command(&rules).map_err(broken("a user"))?;
        // A server without the command knows no rule about it, and needs none.
        let _unknown = redis.command(&["ACL", "SETUSER", "by-script", "-delifeq"]);
        let url = format!("redis://by-script:by-script@{}/0", redis.addr());
        let addresses = Addresses { redis: Some(url), ..stage.servers.addresses(KIND_BY_SCRIPT) };
        Self::at(stage, addresses, KIND_BY_SCRIPT, keys)
    }

    fn at(
        stage: &Stage,
        mut addresses: Addresses,
        kind: LockKind,
        keys: Vec<String>,
    ) -> Result<Self> {
        // Those that keep one for each hold want one for each task.
        addresses.mysql_connections = Some(u32::try_from(keys.len()).unwrap_or(u32::MAX) + SPARE);
        let locks = stage.runtime.block_on(connect(kind, &addresses)).map_err(broken("a lock"))?;
        let names = keys.into_iter().map(|key| LockName::new(key).map_err(broken("a name")));
        let names = names.collect::<Result<_>>()?;
        let options = LockOptions::new(WAIT, locks.guarantees().lease(LEASE));
        let mut processes = servers_of(&stage.servers, kind);
        processes.push(("us of client", std::process::id()));
        Ok(Self { locks, names, options, processes })
    }
}

impl Cell for UncontendedLocks {
    fn slice(&mut self, length: Duration) -> BoxFuture<'_, Result<Slice>> {
        Box::pin(async move {
            let Self { locks, names, options, processes } = self;
            together(names.len(), length, processes, |task, over| {
                let (locks, name, options) = (locks.clone(), names[task].clone(), *options);
                async move {
                    let mut count = 0;
                    while !over.is_over() {
                        let guard = locks.lock(&name, &options).await.map_err(broken("a lock"))?;
                        guard.release().await.map_err(broken("a lock"))?;
                        count += 1;
                        consume_budget().await;
                    }
                    Ok(count)
                }
            })
            .await
        })
    }
}
