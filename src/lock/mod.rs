//! Makes locks from the addresses of their servers, and has the commands about locks.
//!
//! The service and the commands share [`open`].

mod connect;
mod deadlocks;
mod failure;
mod foreground;
mod free;
mod held_list;
mod list;
mod process_group;
mod run;
mod run_window;
mod show;
mod snapshot_view;
mod supervisor;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use distlock::mysql::{MySqlTokens, ensure_schema};
use distlock::{
    Backend, Backends, EtcdServer, Fencing, LockKind, Locks, MySqlServer, NatsServer, RedisServer,
    ZooKeeperServer, guarantees, injected_bug, locker,
};

use crate::config::{Address, LockServers, RedisArgs};
use crate::sale::InjectedBug;
use crate::store::{self, DatabaseOptions, RedisAddress, RedisConnection, StoreError};

pub use deadlocks::deadlock_observer;
pub use free::free;
pub use held_list::list_held;
pub use list::list;
pub use run::run;
pub use show::{show, wait_for};

/// The locks to make: their kind, lease and extras.
#[derive(Debug, Clone, Copy)]
pub struct LockSpec {
    /// The mechanism.
    pub kind: LockKind,
    /// How long a holder that died keeps its locks.
    pub lease: Duration,
    /// Whether holds must be able to carry a fencing token.
    pub fenced: bool,
    /// A deliberate bug (laboratory).
    pub injected_bug: Option<InjectedBug>,
}

/// The servers that locks can use.
pub struct LockEndpoints<'a> {
    /// The service's Redis.
    pub redis: Option<RedisConnection>,
    /// The service's database.
    pub database_url: Option<&'a Address>,
    /// Whether the order's transaction reads as naive code does. This matters for a lock that is
    /// that transaction.
    pub naive: bool,
    /// How long a session may be silent before the database frees its locks.
    pub silence: Duration,
    /// Whether to make missing tables of locks in the database, for programs that do not migrate.
    pub make_tables: bool,
    /// All other servers.
    pub more: &'a LockServers,
}

/// The locks, connected to the servers that their kind needs.
pub async fn open(spec: LockSpec, endpoints: LockEndpoints<'_>) -> anyhow::Result<Locks> {
    let kind = spec.kind;
    let mut servers = Backends::default();
    let mut independent = Vec::new();
    match kind.backend() {
        Backend::Redis => {
            let server = endpoints.redis.as_ref().map(server);
            servers.redis =
                server.map(|server| server.with_replication(endpoints.more.lock_replication));
        }
        Backend::IndependentRedis => {
            independent = endpoints.independent()?;
            servers.redlock_restart_delay = endpoints.more.redlock_restart_delay();
            servers.independent_redis =
                independent.iter().map(|(_, connection)| server(connection)).collect();
        }
        Backend::MySql => servers.mysql = endpoints.mysql().await?,
        Backend::ZooKeeper => servers.zookeeper = endpoints.zookeeper(spec.lease).await?,
        Backend::Etcd => servers.etcd = endpoints.etcd(spec.lease)?,
        Backend::Nats => servers.nats = endpoints.nats(spec.lease)?,
        Backend::Process => {}
    }
    let locks = Locks::new(match spec.injected_bug.and_then(InjectedBug::lock_bug) {
        Some(bug) => injected_bug::locker(bug, &servers)?,
        None => locker(kind, &servers)?,
    });
    if !endpoints.more.redis.allow_eviction {
        refuse_eviction(&independent).await?;
    }
    if !spec.fenced || guarantees(kind).fencing != Fencing::Optional {
        return Ok(locks);
    }
    if let (Some(InjectedBug::TokenFromRedis), Some(server)) = (spec.injected_bug, &servers.redis) {
        return Ok(locks.with_token_issuer(Arc::new(injected_bug::RedisTokens::new(server))));
    }
    let server = endpoints
        .mysql()
        .await?
        .context("fencing tokens come from the database: set DATABASE_URL")?;
    Ok(locks.with_token_issuer(Arc::new(MySqlTokens::new(&server))))
}

/// The name of this host; empty if the system does not tell it.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn server(connection: &RedisConnection) -> RedisServer {
    RedisServer::new(connection.clone())
}

/// The name of the kind's server in answers and metrics.
pub fn server_name(kind: LockKind) -> &'static str {
    match kind.backend() {
        Backend::Process => "process",
        Backend::Redis | Backend::IndependentRedis => "redis",
        Backend::MySql => "database",
        Backend::ZooKeeper => "zookeeper",
        Backend::Etcd => "etcd",
        Backend::Nats => "nats",
    }
}

/// Whether the health of the kind's servers is more than that of the service's own database and
/// Redis.
pub fn has_servers_of_its_own(kind: LockKind, servers: &LockServers) -> bool {
    match kind.backend() {
        Backend::IndependentRedis | Backend::ZooKeeper | Backend::Etcd | Backend::Nats => true,
        // The replicas that must confirm a lock.
        Backend::Redis => servers.lock_replication.confirmations() > 0,
        Backend::Process | Backend::MySql => false,
    }
}

/// The certificate authority for servers with `rediss://`.
fn authority(how: &RedisArgs) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(path) = &how.redis_ca_file else { return Ok(None) };
    let pem = std::fs::read(path);
    pem.map(Some).with_context(|| format!("cannot read {}", path.display()))
}

/// How long a silent Redis is asked again at a start, and sentinels that name no master: they may
/// be silent, or elect one. A single server that refuses connections is not asked again.
pub const START_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before it is asked again.
pub const START_PAUSE: Duration = Duration::from_millis(100);

/// Connects to the Redis of the service and of most kinds; refuses one that may evict keys.
pub async fn redis(url: &Address, how: &RedisArgs) -> anyhow::Result<RedisConnection> {
    let begun = Instant::now();
    loop {
        match usable_redis(url, how).await {
            Err(error) if may_pass(&error, url) && begun.elapsed() < START_TIMEOUT => {
                tracing::debug!(error = format!("{error:#}"), "asking Redis again");
                tokio::time::sleep(START_PAUSE).await;
            }
            usable => return usable,
        }
    }
}

fn may_pass(error: &anyhow::Error, url: &Address) -> bool {
    match error.downcast_ref() {
        Some(StoreError::TimedOut { .. }) => true,
        Some(StoreError::Unavailable { .. }) => RedisAddress::from(url.expose()).is_sentinel(),
        _ => false,
    }
}

async fn usable_redis(url: &Address, how: &RedisArgs) -> anyhow::Result<RedisConnection> {
    let ca = authority(how)?;
    let given_as = url.given_as();
    let address = RedisAddress { url: url.expose(), ca: ca.as_deref() };
    let connected = store::redis(address, how.answer_timeout()).await;
    let redis = connected.with_context(|| format!("cannot connect to {given_as}"))?;
    if !how.allow_eviction {
        store::refuse_eviction(&redis).await.map_err(|error| {
            let what = match &error {
                StoreError::Unexpected(_) => format!("{given_as} (--allow-eviction ignores it)"),
                _ => format!("cannot use {given_as}"),
            };
            anyhow::Error::new(error).context(what)
        })?;
    }
    Ok(redis)
}

/// Refuses servers of `redlock` and `multi` that may evict keys; some may be away.
async fn refuse_eviction(servers: &[(String, RedisConnection)]) -> anyhow::Result<()> {
    for (place, connection) in servers {
        match store::refuse_eviction(connection).await {
            Err(error @ (StoreError::Unexpected(_) | StoreError::AccessDenied { .. })) => {
                return Err(error).with_context(|| place.clone());
            }
            Err(error) => {
                tracing::warn!(%error, place, "server does not answer; eviction is unchecked");
            }
            Ok(()) => {}
        }
    }
    Ok(())
}

/// A hash of the servers of such locks, apart from the service's own. Replicas that name different
/// servers do not exclude each other.
pub fn fingerprint(kind: LockKind, servers: &LockServers) -> Option<String> {
    let mut places: Vec<String> = match kind.backend() {
        Backend::Process | Backend::Redis | Backend::MySql => return None,
        Backend::IndependentRedis => {
            let place = |url: &Address| RedisAddress::from(url.expose()).place();
            servers.independent().map(|url| place(url).unwrap_or_default()).collect()
        }
        Backend::ZooKeeper => {
            let (ensemble, _) = servers.ensemble().unwrap_or_default();
            let (hosts, root) = ensemble.split_once('/').unwrap_or((ensemble, ""));
            hosts.split(',').map(|host| format!("{host}/{root}")).collect()
        }
        Backend::Etcd => {
            let (endpoints, _) = servers.etcd().unwrap_or_default();
            // Replicas may ask as different users.
            let hosts = endpoints.rsplit_once('@').map_or(endpoints, |(_, hosts)| hosts);
            hosts.split(',').map(|endpoint| endpoint.trim().to_owned()).collect()
        }
        Backend::Nats => {
            let (urls, _) = servers.nats().unwrap_or_default();
            let host = |url: &str| {
                let url = url.trim().trim_end_matches('/');
                url.rsplit(['@', '/']).next().unwrap_or_default().to_owned()
            };
            urls.split(',').map(|url| format!("{}/{}", host(url), servers.nats_bucket)).collect()
        }
    };
    places.sort();
    // FNV-1a: the same in every build, unlike the standard library's.
    let hash = places
        .join(" ")
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    Some(format!("{hash:08x}"))
}

impl LockEndpoints<'_> {
    /// The servers of `redlock` and `multi`, each with its address for messages.
    fn independent(&self) -> anyhow::Result<Vec<(String, RedisConnection)>> {
        let ca = authority(&self.more.redis)?;
        let mut servers: Vec<(String, RedisConnection)> = Vec::new();
        for url in self.more.independent() {
            let address = RedisAddress { url: url.expose(), ca: ca.as_deref() };
            let connection = store::redis_later(address, self.more.redis.answer_timeout());
            let connection = connection.with_context(|| url.given_as().to_owned())?;
            servers.push((address.place().unwrap_or_default(), connection));
        }
        Ok(servers)
    }

    /// Opens a session that ends when a dead holder's lease would.
    async fn zookeeper(&self, lease: Duration) -> anyhow::Result<Option<ZooKeeperServer>> {
        let Some((ensemble, given_as)) = self.more.ensemble() else { return Ok(None) };
        let server = ZooKeeperServer::connect(ensemble, lease).await;
        server.map(Some).with_context(|| format!("cannot connect to {given_as}"))
    }

    /// A lease there ends when a dead holder's would.
    fn etcd(&self, lease: Duration) -> anyhow::Result<Option<EtcdServer>> {
        let Some((endpoints, given_as)) = self.more.etcd() else { return Ok(None) };
        let server = EtcdServer::connect_lazily(endpoints, lease);
        server.map(Some).with_context(|| format!("{given_as} is not usable"))
    }

    /// A new bucket keeps entries for as long as a dead holder keeps its locks.
    fn nats(&self, lease: Duration) -> anyhow::Result<Option<NatsServer>> {
        let Some((urls, given_as)) = self.more.nats() else { return Ok(None) };
        let server = NatsServer::connect_lazily(urls, &self.more.nats_bucket, lease);
        server.map(Some).with_context(|| format!("{given_as} is not usable"))
    }

    /// Opens a pool for locks only, so that work under a lock never waits for a connection that a
    /// waiter of the lock has.
    async fn mysql(&self) -> anyhow::Result<Option<MySqlServer>> {
        let Some(url) = self.database_url else { return Ok(None) };
        let options = DatabaseOptions {
            url: url.expose().to_owned(),
            pool_size: self.more.lock_pool,
            naive: self.naive,
            silence: Some(self.silence),
        };
        let pool = store::database(&options).await;
        let pool = pool.with_context(|| format!("{} is not usable", url.given_as()))?;
        if self.make_tables {
            ensure_schema(&pool).await.context("cannot make the tables of locks")?;
        }
        Ok(Some(MySqlServer::new(pool)))
    }
}
