//! A deployment of the service: its database, its replicas, and HAProxy in front of them, even of a
//! single one. Links on which a fault happens go through a proxy; all others are direct.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use loadtest_load::tokens;
use loadtest_load::tokens::User;
use loadtest_measure::error::Result;
use testbed::{
    Database, Haproxy, HaproxyOptions, PacketLink, Proxy, Redis, RedisCluster, RedisSentinel,
    Replica, ReplicatedDatabase, ShardedDatabase,
};

use crate::cluster::{Cluster, RedisServers, blocking};
use crate::command::run_seckill;
use crate::fleet::Fleet;
use crate::lock::{ExtraServers, Lock};
use crate::lock_server::{LockEnsemble, LockServer};
use crate::replica_starter::{ReplicaProxies, ReplicaStarter};
use crate::requirements::{FaultRequirements, Link};
use crate::sale_database::{GALERA_NODES, SaleDatabase};
use crate::topology::Topology;

/// Lines of each log that an error shows.
const LOG_LINES: usize = 15;
/// Empties a logical database of Redis. ARGV: its number.
const FLUSH_SCRIPT: &str = "redis.call('select', ARGV[1]) redis.call('flushdb')";

/// The variable that `seckill` takes the secret of its tokens from.
const JWT_SECRET: &str = "JWT_SECRET";

/// Tells tokio's runtime how many threads run tasks.
pub const WORKER_THREADS: &str = "TOKIO_WORKER_THREADS";

/// The settings of a deployment.
#[derive(Debug, Clone)]
pub struct DeploymentSpec {
    /// Number of this deployment in the run, from 0; below
    /// [`MAX_DEPLOYMENTS`](crate::cluster::MAX_DEPLOYMENTS).
    pub number: u16,
    /// Replicas, at least 1.
    pub replicas: u16,
    /// Flags of `seckill serve` besides address and name.
    pub flags: Vec<String>,
    /// What the replicas are.
    pub fleet: Fleet,
    /// Threads of each replica that run its tasks; `None` is one for each processor.
    pub worker_threads: Option<usize>,
    /// What its lock needs; the cluster must have been started with it.
    pub needs: ExtraServers,
    /// What a fault needs.
    pub requirements: FaultRequirements,
    /// Which servers it runs on.
    pub topology: Topology,
    /// The proxy's public port; `None` takes any free one.
    pub page_port: Option<u16>,
    /// Where the history of its sale goes; to no file that stays, if none is named.
    pub history: Option<PathBuf>,
}

impl Default for DeploymentSpec {
    /// One replica of a lock that needs nothing.
    fn default() -> Self {
        Self {
            number: 0,
            replicas: 1,
            flags: Vec::new(),
            fleet: Fleet::RUST,
            worker_threads: None,
            needs: ExtraServers::Nothing,
            requirements: FaultRequirements::default(),
            topology: Topology::Single,
            page_port: None,
            history: None,
        }
    }
}

/// A running service; dropping it kills its processes, and so does [`Deployment::end`] without
/// blocking the caller.
#[derive(Debug)]
pub struct Deployment {
    haproxy: Haproxy,
    replicas: Vec<Arc<Replica>>,
    proxies: Vec<ReplicaProxies>,
    redis: RedisServers,
    database: SaleDatabase,
    number: u16,
    lock_server: Option<LockServer>,
    name: String,
    secrets: Vec<(String, String)>,
    folder: PathBuf,
    program: PathBuf,
    history: Option<PathBuf>,
}

impl Deployment {
    /// Creates the deployment's database and schema, starts its replicas, then the proxy.
    pub(super) async fn start(
        cluster: &Cluster,
        spec: DeploymentSpec,
        (redis, database): (RedisServers, SaleDatabase),
        lock_server: Option<LockServer>,
    ) -> Result<Self> {
        let name = format!("sale_{}", spec.number);
        let lab = spec.flags.iter().any(|flag| flag == "--lab");
        let database_url = cluster.schema_on(&database, &name, lab).await?;
        let mut secrets = vec![
            ("DATABASE_URL".to_owned(), database_url),
            (JWT_SECRET.to_owned(), cluster.jwt_secret.clone()),
        ];
        secrets.extend(lock_server.as_ref().map(LockServer::setting));
        secrets.extend(redis.urls(spec.number, &[]));
        let parts = ReplicaStarter {
            cluster,
            spec: &spec,
            redis: &redis,
            database: &database,
            zookeeper: lock_server.as_ref().and_then(LockServer::zookeeper),
            secrets: &secrets,
        };
        let (replicas, proxies) = parts.start_replicas().await?;
        let bed = cluster.bed.clone();
        let front = |(replica, proxies): (&Arc<Replica>, &ReplicaProxies)| {
            proxies.front.first().map_or_else(|| replica.addr(), Proxy::addr)
        };
        let addresses: Vec<_> = replicas.iter().zip(&proxies).map(front).collect();
        let options = HaproxyOptions { port: spec.page_port, ..HaproxyOptions::default() };
        let haproxy = blocking(move || bed.haproxy_with(&options, &addresses)).await?;
        Ok(Self {
            haproxy,
            replicas,
            proxies,
            redis,
            database,
            number: spec.number,
            lock_server,
            name,
            secrets,
            folder: cluster.folder().to_owned(),
            program: cluster.program.clone(),
            history: spec.history,
        })
    }

    /// The public address.
    pub fn url(&self) -> &str {
        self.haproxy.url()
    }

    /// The operators' address, where the audit is published.
    pub fn operator_url(&self) -> &str {
        self.haproxy.operator_url()
    }

    /// The address of its database, password included: for the judge only.
    pub fn database_url(&self) -> String {
        self.database.primary_url(&self.name)
    }

    /// The addresses of its servers, passwords included, each after the variable that `seckill`
    /// takes it from.
    pub fn server_urls(&self) -> impl Iterator<Item = &(String, String)> {
        self.secrets.iter().filter(|(variable, _)| variable != JWT_SECRET)
    }

    /// Where the history of its sale is written, if it is kept.
    pub fn history(&self) -> Option<&Path> {
        self.history.as_deref()
    }

    /// The folder of its servers, which is removed with them.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The replicas, `r1` first.
    pub fn replicas(&self) -> &[Arc<Replica>] {
        &self.replicas
    }

    /// The server that its database is on; the primary, if there are several.
    pub fn database(&self) -> &Arc<Database> {
        self.database.primary()
    }

    /// The primary and the replica of the database, if it has any.
    pub fn replicated_database(&self) -> Option<&Arc<ReplicatedDatabase>> {
        match &self.database {
            SaleDatabase::Replicated(group) => Some(group),
            _ => None,
        }
    }

    /// The nodes of Galera that its database is on.
    pub fn galera(&self) -> Option<&Arc<[Arc<Database>; GALERA_NODES]>> {
        match &self.database {
            SaleDatabase::Galera(nodes) => Some(nodes),
            _ => None,
        }
    }

    /// The shards that its database is on, and their front.
    pub fn shards(&self) -> Option<&Arc<ShardedDatabase>> {
        match &self.database {
            SaleDatabase::Sharded(group) => Some(group),
            _ => None,
        }
    }

    /// The name of its database.
    pub fn database_name(&self) -> &str {
        &self.name
    }

    /// The Redis that the lock lives on: the only one, or the first of the independent ones.
    pub fn redis(&self) -> &Arc<Redis> {
        self.redis.independent.first().unwrap_or(&self.redis.main)
    }

    /// The logical database of each Redis that is its own.
    pub fn redis_database(&self) -> u16 {
        self.number
    }

    /// The replica that a failover promotes, with the link on which it replicates.
    pub fn follower(&self) -> Option<(&Redis, &Proxy)> {
        self.redis.follower.as_ref().map(|follower| (&follower.0, &follower.1))
    }

    /// The group with sentinels that its main Redis is in.
    pub fn sentinel(&self) -> Option<&Arc<RedisSentinel>> {
        self.redis.sentinel.as_ref()
    }

    /// The main Redis, on which order numbers are drawn.
    pub fn main_redis(&self) -> &Arc<Redis> {
        &self.redis.main
    }

    /// The proxies of that replica (from 0) on that link; empty if no fault needs them.
    pub fn proxies(&self, replica: usize, link: Link) -> &[Proxy] {
        let Some(proxies) = self.proxies.get(replica) else { return &[] };
        match link {
            Link::Redis => &proxies.redis,
            Link::Database => &proxies.database,
            Link::Replica => &proxies.front,
            Link::Zookeeper => &proxies.zookeeper,
        }
    }

    /// The ways of that replica on which packets can be lost; empty if no fault needs them.
    pub fn packet_links(&self, replica: usize) -> &[Arc<PacketLink>] {
        self.proxies.get(replica).map_or(&[], |proxies| &proxies.packet_links)
    }

    /// Names of replicas that are not running any more.
    pub fn dead(&self) -> Vec<String> {
        let replicas = self.replicas.iter().enumerate();
        let dead = replicas.filter(|(_, replica)| !replica.is_running());
        dead.map(|(index, _)| replica_name(index)).collect()
    }

    /// The last lines of each replica's log.
    pub fn log_tails(&self) -> String {
        let tail = |replica: &Arc<Replica>| {
            format!("{}:\n{}", replica.name(), replica.log_tail(LOG_LINES))
        };
        self.replicas.iter().map(tail).collect::<Vec<_>>().join("\n")
    }

    /// Creates users by `seckill token` and gives their tokens, and the file that holds them.
    pub async fn users(&self, count: usize, admin: bool) -> Result<(Vec<User>, PathBuf)> {
        let who = if admin { "admin" } else { "buyers" };
        let file = self.folder.join(format!("{}-{who}.jsonl", self.name));
        let (count, path) = (count.to_string(), file.display().to_string());
        let mut arguments = vec!["token", "--users", &count, "--out", &path];
        if admin {
            arguments.push("--admin");
        }
        run_seckill(&self.program, &arguments, &self.secrets).await?;
        let users = tokens::read(&file)?;
        Ok((users, file))
    }

    /// The proxy's process.
    pub fn proxy_pid(&self) -> u32 {
        self.haproxy.pid()
    }

    /// The processes of its `ZooKeeper`, etcd or NATS, if its lock needs one, and which it is.
    pub fn lock_servers(&self) -> Vec<(&'static str, u32)> {
        self.lock_server.as_ref().map(LockServer::processes).unwrap_or_default()
    }

    /// The three servers that its lock lives on, if they are three.
    pub fn ensemble(&self) -> Option<&LockEnsemble> {
        self.lock_server.as_ref().and_then(LockServer::ensemble)
    }

    /// The Redis Cluster that its main Redis is in.
    pub fn redis_cluster(&self) -> Option<&Arc<RedisCluster>> {
        self.redis.cluster.as_ref()
    }

    /// `seckill` with the secrets of its replicas.
    pub fn command(&self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.program);
        command.envs(self.secrets.iter().map(|(key, value)| (key, value))).stdin(Stdio::null());
        command
    }

    /// `seckill lock ls` of that lock, which writes a line of JSON each second. After a failover it
    /// reads the new master.
    pub fn inspector(&self, lock: Lock) -> std::process::Command {
        let mut command = self.command();
        command.args(["lock", "ls", "--watch", "--json", "--kind", lock.name()]);
        let successor = self.follower().filter(|_| !self.main_redis().is_running());
        if let Some((successor, _)) = successor {
            let url = successor.url().trim_end_matches("/0");
            command.env("REDIS_URL", format!("{url}/{}", self.number));
        }
        command
    }

    /// Another replica of that kind with the secrets of these, without an address.
    pub fn replica_command(&self, fleet: Fleet) -> Result<std::process::Command> {
        let replica = fleet.program(1, &self.program)?;
        let mut command = std::process::Command::new(replica.program);
        command.args(replica.args).envs(self.secrets.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::null());
        Ok(command)
    }

    /// Ends the deployment, drops its database and empties its Redis data. Its number can then be
    /// used again: queues are kept under the ids of vouchers, which restart at 1.
    pub async fn end_and_drop(self) -> Result<()> {
        let (server, name, number) = (self.database.clone(), self.name.clone(), self.number);
        // A Redis Cluster has ended with it, and has one database only.
        let redis: Vec<Arc<Redis>> = match self.redis.cluster {
            Some(_) => Vec::new(),
            None => self.redis.all().cloned().collect(),
        };
        self.end().await;
        blocking(move || {
            for one in redis {
                one.command(&["EVAL", FLUSH_SCRIPT, "0", &number.to_string()])?;
            }
            server.drop_database(&name)
        })
        .await
    }

    /// Kills its processes. Nothing of it is used again, so a clean end is not awaited.
    pub async fn end(self) {
        // A panic in a drop is all that can go wrong here, and the next deployment does not depend
        // on this one.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

/// What the replica of that index calls itself in its answers.
pub fn replica_name(index: usize) -> String {
    format!("r{}", index + 1)
}
