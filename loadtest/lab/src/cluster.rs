//! A private cluster: one database server and one Redis for the whole run, and what deployments of
//! the service on them need.
//!
//! A deployment has its own database and its own logical Redis database: names of locks hold ids of
//! users and vouchers, which start at 1 in every database. Servers that only some locks need are
//! started only for those: five independent Redis servers for the whole run, a ZooKeeper, an
//! etcd or a NATS for each deployment. A deployment whose fault hits Redis has its own Redis
//! servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use loadtest_measure::error::{Error, Result};
use loadtest_measure::machine::{service_version, version_of};
use testbed::{
    Bed, Database, Flavor, Proxy, Redis, RedisCluster, RedisMaster, RedisOptions, RedisSentinel,
    SentinelOptions,
};
use uuid::Uuid;

use crate::command::run_seckill;
use crate::deployment::{Deployment, DeploymentSpec};
use crate::lock::ExtraServers;
use crate::lock_server::LockServerVersions;
use crate::requirements::FaultRequirements;
use crate::sale_database::SaleDatabase;
use crate::topology::Topology;

/// Logical databases of the private Redis, hence deployments in one run.
pub const MAX_DEPLOYMENTS: u16 = 256;
/// Independent Redis servers, for locks on a majority or on all of them.
const INDEPENDENT_REDIS_SERVERS: usize = 5;

/// Masters of a Redis Cluster.
const CLUSTER_MASTERS: u16 = 3;

/// What a `seckill` with failpoints says of itself.
const FAILPOINTS_IN_VERSION: &str = "with failpoints";

/// The servers that all deployments share.
#[derive(Debug)]
pub struct Cluster {
    // Declared before the bed, so that servers end before their folder goes.
    shared: RedisServers,
    pub(super) database: Arc<Database>,
    pub(super) program: PathBuf,
    pub(super) jwt_secret: String,
    haproxy_version: String,
    pub(super) lock_server_versions: LockServerVersions,
    pub(super) bed: Arc<Bed>,
}

/// The Redis servers of a deployment. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct RedisServers {
    pub(super) main: Arc<Redis>,
    pub(super) independent: Vec<Arc<Redis>>,
    /// A replica of the main one, and the proxied link on which it replicates.
    pub(super) follower: Option<Arc<(Redis, testbed::Proxy)>>,
    /// What the main one was the first master of.
    pub(super) sentinel: Option<Arc<RedisSentinel>>,
    /// What the main one is in. It has no logical databases.
    pub(super) cluster: Option<Arc<RedisCluster>>,
}

/// The `seckill` program: the one named, or the one beside this program.
pub fn find_program(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = named {
        return if path.is_file() {
            Ok(path.to_owned())
        } else {
            Err(Error::Usage(format!("there is no program {}", path.display())))
        };
    }
    let beside =
        std::env::current_exe().ok().and_then(|own| own.parent().map(|d| d.join("seckill")));
    match beside {
        Some(path) if path.is_file() => Ok(path),
        _ => Err(Error::Usage(
            "there is no program `seckill` beside this one; build it, or name it with --seckill"
                .to_owned(),
        )),
    }
}

/// Fails unless that `seckill` was built with failpoints.
pub async fn need_failpoints(program: &Path) -> Result<()> {
    if service_version(program).await?.contains(FAILPOINTS_IN_VERSION) {
        return Ok(());
    }
    let shown = program.display();
    Err(Error::Usage(format!(
        "the fault failpoint needs a program with failpoints, and {shown} has none; \
         `cargo build --features failpoints --target-dir target/failpoints` makes one, and \
         --seckill names it"
    )))
}

/// Which programs the servers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerPrograms {
    /// The database server.
    pub flavor: Flavor,
    /// Whether Redis is Valkey.
    pub valkey: bool,
}

impl ServerPrograms {
    /// What is installed.
    pub const INSTALLED: Self = Self { flavor: Flavor::Any, valkey: false };
}

impl Cluster {
    /// Starts the servers, all at the same time, with what locks need besides.
    pub async fn start(
        servers: ServerPrograms,
        program: PathBuf,
        needs: &[ExtraServers],
    ) -> Result<Self> {
        let ServerPrograms { flavor, valkey } = servers;
        let start_bed = move || {
            let builder = Bed::builder();
            if valkey { builder.valkey()?.start() } else { builder.start() }
        };
        let bed = Arc::new(blocking(start_bed).await?);
        let (for_database, for_proxy) = (bed.clone(), bed.clone());
        let independent = needs.contains(&ExtraServers::IndependentRedis);
        // The proxy without replicas shows now, and not in every deployment, if there is none.
        let (shared, database, proxy) = tokio::join!(
            RedisServers::start(&bed, independent, FaultRequirements::default(), Topology::Single),
            blocking(move || for_database.database(flavor)),
            blocking(move || for_proxy.haproxy(&[])),
        );
        let haproxy_version = version_of(proxy?.pid(), "haproxy", "-v").await;
        let jwt_secret = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        Ok(Self {
            shared: shared?,
            database: Arc::new(database?),
            program,
            jwt_secret,
            haproxy_version,
            lock_server_versions: LockServerVersions::default(),
            bed,
        })
    }

    /// The run's private folder.
    pub fn folder(&self) -> &Path {
        self.bed.dir()
    }

    /// The address of one of the server's databases, password included: for the judge only.
    pub fn database_url(&self, name: &str) -> String {
        self.database.url(name)
    }

    /// The shared Redis.
    pub fn redis(&self) -> &Arc<Redis> {
        &self.shared.main
    }

    /// The process of the shared Redis.
    pub fn redis_pid(&self) -> u32 {
        self.shared.main.pid()
    }

    /// The version of the proxy that deployments use.
    pub fn haproxy_version(&self) -> &str {
        &self.haproxy_version
    }

    /// The versions of the servers that locks live on alone.
    pub fn lock_server_versions(&self) -> &LockServerVersions {
        &self.lock_server_versions
    }

    /// Which database server it is.
    pub fn flavor(&self) -> Flavor {
        self.database.flavor()
    }

    /// The database server's process.
    pub fn database_pid(&self) -> u32 {
        self.database.pid()
    }

    /// Creates a database with the service's tables; its address, password included.
    pub async fn schema(&self, name: &str, lab: bool) -> Result<String> {
        self.schema_on(&SaleDatabase::Single(self.database.clone()), name, lab).await
    }

    pub(super) async fn schema_on(
        &self,
        database: &SaleDatabase,
        name: &str,
        lab: bool,
    ) -> Result<String> {
        if let SaleDatabase::Sharded(group) = database {
            return self.schema_on_shards(group, name, lab).await;
        }
        let (server, new) = (database.primary().clone(), name.to_owned());
        blocking(move || server.create_database(&new)).await?;
        let url = database.url(name);
        self.migrate(&url, lab).await?;
        Ok(url)
    }

    /// Makes the service's tables in that database.
    pub(super) async fn migrate(&self, url: &str, lab: bool) -> Result<()> {
        let secrets = [("DATABASE_URL".to_owned(), url.to_owned())];
        let migrate: &[&str] = if lab { &["migrate", "--lab"] } else { &["migrate"] };
        run_seckill(&self.program, migrate, &secrets).await.map(drop)
    }

    /// Drops a database.
    pub async fn drop_schema(&self, name: &str) -> Result<()> {
        let (server, name) = (self.database.clone(), name.to_owned());
        blocking(move || server.drop_database(&name)).await
    }

    /// Starts what the deployment needs besides the shared servers, all at the same time, then the
    /// deployment.
    pub async fn deploy(&self, spec: DeploymentSpec) -> Result<Deployment> {
        let independent = spec.needs == ExtraServers::IndependentRedis;
        let (topology, requirements) = (spec.topology, spec.requirements);
        let redis = async {
            if requirements.own_redis || topology.has_own_redis() {
                RedisServers::start(&self.bed, independent, requirements, topology).await
            } else {
                Ok(self.shared.clone())
            }
        };
        let lock_server = self.start_lock_server(spec.needs, topology, requirements);
        let database = SaleDatabase::start(self, topology, requirements);
        let (redis, lock_server, database) = tokio::try_join!(redis, lock_server, database)?;
        Box::pin(Deployment::start(self, spec, (redis, database), lock_server)).await
    }

    /// Has the shared servers running again, whatever a cell that failed has left them as.
    pub async fn restore_servers(&self) -> Result<()> {
        let database = self.database.clone();
        blocking(move || if database.is_running() { database.thaw() } else { database.restart() })
            .await
    }
}

impl RedisServers {
    async fn start(
        bed: &Arc<Bed>,
        independent: bool,
        requirements: FaultRequirements,
        topology: Topology,
    ) -> Result<Self> {
        // With `always` a Redis ends when its disk is full, instead of refusing writes.
        let fsync = requirements.redis_disk.then(|| "appendfsync everysec".to_owned());
        let databases = format!("databases {MAX_DEPLOYMENTS}");
        let options = RedisOptions {
            extra: std::iter::once(databases).chain(fsync).collect(),
            appendonly: requirements.redis_disk,
            disk_space: requirements.redis_disk,
            clock: requirements.clock,
            ..RedisOptions::default()
        };
        let group = if requirements.sentinel { Topology::Sentinel } else { topology };
        let replicas_each = u16::from(requirements.cluster_replicas);
        let count = if independent { INDEPENDENT_REDIS_SERVERS } else { 0 };
        let (for_main, for_independent, for_follower) = (bed.clone(), bed.clone(), bed.clone());
        let (main_options, follower_options) = (options.clone(), options.clone());
        let (main, independent) = tokio::join!(
            blocking(move || start_main(&for_main, main_options, group, replicas_each)),
            blocking(move || for_independent.redis_many(count, options)),
        );
        let MainRedis { server: main, sentinel, cluster } = main?;
        let follower = if requirements.follower {
            let master = main.clone();
            let start_follower = move || start_follower(&for_follower, &master, follower_options);
            Some(Arc::new(blocking(start_follower).await?))
        } else {
            None
        };
        let independent = independent?.into_iter().map(Arc::new).collect();
        Ok(Self { main, independent, follower, sentinel, cluster })
    }

    /// The addresses of that logical database of each, through these proxies if there are any,
    /// each after the variable that a replica takes it from.
    pub(super) fn urls(&self, number: u16, proxies: &[Proxy]) -> Vec<(String, String)> {
        let database = |url: &str| format!("{}/{number}", url.trim_end_matches("/0"));
        let mut urls = Vec::new();
        for (index, server) in self.all().enumerate() {
            let url = match (&self.sentinel, &self.cluster) {
                (_, Some(cluster)) if index == 0 => cluster.url(),
                (Some(group), _) if index == 0 => database(&group.url()),
                _ => database(server.url()),
            };
            let proxy = proxies.get(index);
            let through = |proxy: &Proxy| proxy.instead_of(server.addr(), &url);
            urls.push(proxy.map_or_else(|| url.clone(), through));
        }
        let independent = urls.split_off(1).join(",");
        let mut named = vec![("REDIS_URL".to_owned(), urls.concat())];
        if !independent.is_empty() {
            named.push(("REDLOCK_URLS".to_owned(), independent));
        }
        named
    }

    /// Every server that locks may live on.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Redis>> {
        std::iter::once(&self.main).chain(&self.independent)
    }
}

/// The main Redis, and the group that it is in.
struct MainRedis {
    server: Arc<Redis>,
    sentinel: Option<Arc<RedisSentinel>>,
    cluster: Option<Arc<RedisCluster>>,
}

/// The main Redis: alone, the master of a group with sentinels, or a master of a cluster.
fn start_main(
    bed: &Bed,
    options: RedisOptions,
    topology: Topology,
    replicas_each: u16,
) -> testbed::Result<MainRedis> {
    if topology == Topology::RedisCluster {
        let cluster = Arc::new(bed.redis_cluster(CLUSTER_MASTERS, replicas_each)?);
        let server = cluster.masters()[0].clone();
        return Ok(MainRedis { server, sentinel: None, cluster: Some(cluster) });
    }
    if !topology.has_sentinels() {
        let server = Arc::new(bed.redis(options)?);
        return Ok(MainRedis { server, sentinel: None, cluster: None });
    }
    let options = SentinelOptions { redis: options, guarded: false };
    let group = Arc::new(bed.redis_sentinel(options)?);
    let server = group.nodes()[0].clone();
    Ok(MainRedis { server, sentinel: Some(group), cluster: None })
}

/// A replica whose way to its master can be cut, and that takes the master's password as well, so
/// that clients of the master can be led to it.
fn start_follower(
    bed: &Bed,
    master: &Redis,
    options: RedisOptions,
) -> testbed::Result<(Redis, testbed::Proxy)> {
    let way = testbed::Proxy::before(master.addr())?;
    let addressed = RedisMaster { addr: way.addr(), ..master.as_master() };
    let password = format!(">{}", addressed.password);
    let follower = bed.redis(RedisOptions { replica_of: Some(addressed), ..options })?;
    follower.command(&["ACL", "SETUSER", "default", &password])?;
    Ok((follower, way))
}

/// Runs one of testbed's blocking calls where it may block.
pub(super) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> testbed::Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(call)
        .await
        .map_err(|error| Error::Setup(error.to_string()))?
        .map_err(|error| Error::Setup(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_missing_program_is_a_usage_error_that_says_what_to_do() {
        let error = find_program(Some(Path::new("/nonexistent/seckill"))).expect_err("missing");
        assert_eq!(error.exit_code(), 2);
        let error = find_program(None).expect_err("tests run in a folder without it");
        assert!(error.to_string().contains("--seckill"), "{error}");
    }

    #[tokio::test]
    async fn a_database_server_that_hangs_does_not_block_other_tasks() {
        let program = PathBuf::from("/nonexistent/seckill");
        let cluster =
            Cluster::start(ServerPrograms::INSTALLED, program, &[]).await.expect("the servers");
        cluster.database.freeze().expect("frozen");
        let spec = DeploymentSpec { replicas: 1, ..DeploymentSpec::default() };
        let patience = Duration::from_millis(200);
        let deployed = tokio::time::timeout(patience, cluster.deploy(spec)).await;
        cluster.database.thaw().expect("thawed");
        assert!(deployed.is_err(), "the timer had to wait for the server: {deployed:?}");
    }
}
