//! A private cluster: one database server and one Redis for the whole run, and deployments of the
//! service on them.
//!
//! A deployment is a database of its own, a logical Redis database of its own (names of locks hold
//! ids of users and vouchers, which start anew in every database), its replicas, and HAProxy in
//! front of them, even of a single one. What only some locks need is started only for those: five
//! independent Redis servers for the whole run, a ZooKeeper for each deployment.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use testbed::{
    Bed, Database, Flavor, Haproxy, Redis, RedisOptions, Replica, ReplicaSpec, ZooKeeper,
    ZooKeeperOptions,
};
use tokio::process::Command;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::lab::lock::Needs;
use crate::lab::machine::{first_version, version_of};
use crate::load::tokens::{self, User};

/// Logical databases of the private Redis, hence deployments in one run.
pub const MAX_DEPLOYMENTS: u16 = 256;
/// How long `seckill migrate` or `seckill token` may take.
const COMMAND_DEADLINE: Duration = Duration::from_mins(1);
/// Independent Redis servers, for locks on a majority or on all of them.
const INDEPENDENT: usize = 5;
/// Lines of each log that an error shows.
const LOG_LINES: usize = 15;

/// The servers that all deployments share.
#[derive(Debug)]
pub struct Cluster {
    // Declared before the bed, so that servers end before their folder goes.
    redis: Redis,
    independent: Vec<Redis>,
    database: Arc<Database>,
    program: PathBuf,
    jwt_secret: String,
    haproxy_version: String,
    zookeeper_version: OnceLock<String>,
    bed: Arc<Bed>,
}

/// What a deployment is to be like.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Number of this deployment in the run, from 0; below [`MAX_DEPLOYMENTS`].
    pub number: u16,
    /// Replicas, at least 1.
    pub replicas: u16,
    /// Flags of `seckill serve` besides address and name.
    pub flags: Vec<String>,
    /// What its lock needs; the cluster must have been started with it.
    pub needs: Needs,
    /// The proxy's public port; `None` takes any free one.
    pub page_port: Option<u16>,
}

/// A running service; dropping it kills its processes, and so does [`Deployment::end`] without
/// blocking the caller.
#[derive(Debug)]
pub struct Deployment {
    haproxy: Haproxy,
    replicas: Vec<Replica>,
    _zookeeper: Option<ZooKeeper>,
    name: String,
    database: String,
    secrets: Vec<(String, String)>,
    folder: PathBuf,
    program: PathBuf,
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

impl Cluster {
    /// Starts the servers, all at the same time, with what locks need besides.
    pub async fn start(flavor: Flavor, program: PathBuf, needs: &[Needs]) -> Result<Self> {
        let bed = Arc::new(blocking(Bed::start).await?);
        let (for_redis, for_database, for_proxy) = (bed.clone(), bed.clone(), bed.clone());
        let for_independent = bed.clone();
        let independent = if needs.contains(&Needs::IndependentRedis) { INDEPENDENT } else { 0 };
        let options = RedisOptions {
            extra: vec![format!("databases {MAX_DEPLOYMENTS}")],
            ..RedisOptions::default()
        };
        // The proxy without replicas shows now, and not in every deployment, if there is none.
        let same = options.clone();
        let (redis, independent, database, proxy) = tokio::join!(
            blocking(move || for_redis.redis(options)),
            blocking(move || for_independent.redis_many(independent, same)),
            blocking(move || for_database.database(flavor)),
            blocking(move || for_proxy.haproxy(&[])),
        );
        let haproxy_version = version_of(proxy?.pid(), "haproxy", "-v").await;
        let jwt_secret = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        Ok(Self {
            redis: redis?,
            independent: independent?,
            database: Arc::new(database?),
            program,
            jwt_secret,
            haproxy_version,
            zookeeper_version: OnceLock::new(),
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

    /// The process of the shared Redis.
    pub fn redis_pid(&self) -> u32 {
        self.redis.pid()
    }

    /// The version of the proxy that deployments use.
    pub fn haproxy_version(&self) -> &str {
        &self.haproxy_version
    }

    /// The version of ZooKeeper, once a deployment has needed one.
    pub fn zookeeper_version(&self) -> Option<&str> {
        self.zookeeper_version.get().map(String::as_str)
    }

    /// Creates the deployment's database and schema, starts its replicas, then the proxy.
    pub async fn deploy(&self, spec: Spec) -> Result<Deployment> {
        let name = format!("sale_{}", spec.number);
        let (server, new) = (self.database.clone(), name.clone());
        blocking(move || server.create_database(&new)).await?;
        let database = self.database.url(&name);
        let redis = self.redis.url().trim_end_matches("/0");
        let mut secrets = vec![
            ("DATABASE_URL".to_owned(), database.clone()),
            ("REDIS_URL".to_owned(), format!("{redis}/{}", spec.number)),
            ("JWT_SECRET".to_owned(), self.jwt_secret.clone()),
        ];
        let zookeeper = match spec.needs {
            Needs::Nothing => None,
            Needs::IndependentRedis => {
                secrets.push(("RED_URLS".to_owned(), self.independent_urls(spec.number)));
                None
            }
            Needs::ZooKeeper => {
                let zookeeper = self.start_zookeeper().await?;
                secrets.push(("ZOOKEEPER_URL".to_owned(), zookeeper.connect_string().to_owned()));
                Some(zookeeper)
            }
        };
        let lab = spec.flags.iter().any(|flag| flag == "--lab");
        let migrate: &[&str] = if lab { &["migrate", "--lab"] } else { &["migrate"] };
        run_seckill(&self.program, migrate, &secrets).await?;
        let replicas = self.start_replicas(&spec, &secrets).await?;
        let bed = self.bed.clone();
        let addresses: Vec<_> = replicas.iter().map(Replica::addr).collect();
        let haproxy = blocking(move || match spec.page_port {
            Some(port) => bed.haproxy_on(port, &addresses),
            None => bed.haproxy(&addresses),
        })
        .await?;
        let (program, folder) = (self.program.clone(), self.folder().to_owned());
        Ok(Deployment {
            haproxy,
            replicas,
            _zookeeper: zookeeper,
            name,
            database,
            secrets,
            folder,
            program,
        })
    }

    /// That logical database of each of the independent servers.
    fn independent_urls(&self, number: u16) -> String {
        let urls = self.independent.iter().map(|redis| redis.url().trim_end_matches("/0"));
        urls.map(|url| format!("{url}/{number}")).collect::<Vec<_>>().join(",")
    }

    async fn start_zookeeper(&self) -> Result<ZooKeeper> {
        let (bed, options) = (self.bed.clone(), ZooKeeperOptions::default());
        let (zookeeper, said) = blocking(move || {
            let zookeeper = bed.zookeeper(options)?;
            let said = zookeeper.four_letter_word("srvr")?;
            Ok((zookeeper, said))
        })
        .await?;
        // `Zookeeper version: 3.8.0-...`
        let version = first_version(&said).unwrap_or_default();
        let number = version.split('-').next().unwrap_or_default();
        self.zookeeper_version.get_or_init(|| number.to_owned());
        Ok(zookeeper)
    }

    async fn start_replicas(
        &self,
        spec: &Spec,
        secrets: &[(String, String)],
    ) -> Result<Vec<Replica>> {
        let mut starting = Vec::new();
        for number in 1..=spec.replicas {
            let name = format!("r{number}");
            let mut replica = ReplicaSpec::new(&name, &self.program)
                .args(["serve", "--no-migrate", "--bind", "127.0.0.1:0", "--replica-id", &name])
                .args(spec.flags.clone());
            for (key, value) in secrets {
                replica = replica.env(key, value);
            }
            let bed = self.bed.clone();
            starting.push(tokio::spawn(blocking(move || bed.replica(replica))));
        }
        let mut replicas = Vec::with_capacity(starting.len());
        for replica in starting {
            replicas.push(replica.await.map_err(|error| Error::Setup(error.to_string()))??);
        }
        Ok(replicas)
    }
}

impl Deployment {
    /// The public address.
    pub fn url(&self) -> &str {
        self.haproxy.url()
    }

    /// The operators' address, where the audit is published.
    pub fn operator_url(&self) -> &str {
        self.haproxy.operator_url()
    }

    /// The address of each replica, past the proxy.
    pub fn replica_addresses(&self) -> Vec<SocketAddr> {
        self.replicas.iter().map(Replica::addr).collect()
    }

    /// The address of its database, password included: for the judge only.
    pub fn database_url(&self) -> &str {
        &self.database
    }

    /// Names of replicas that are not running any more.
    pub fn dead(&self) -> Vec<String> {
        let dead = self.replicas.iter().filter(|replica| !replica.is_running());
        dead.map(|replica| replica.name().to_owned()).collect()
    }

    /// The last lines of each replica's log.
    pub fn log_tails(&self) -> String {
        let tail =
            |replica: &Replica| format!("{}:\n{}", replica.name(), replica.log_tail(LOG_LINES));
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

    /// Kills its processes. Nothing of it is used again, so nobody waits for a clean end.
    pub async fn end(self) {
        // A panic in a drop is all that can go wrong here, and the next deployment does not depend
        // on this one.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

/// Runs `seckill` to its end; an error holds the last line that it wrote to stderr.
async fn run_seckill(
    program: &Path,
    arguments: &[&str],
    secrets: &[(String, String)],
) -> Result<Output> {
    let shown = format!("{} {}", program.display(), arguments.first().unwrap_or(&""));
    let child = Command::new(program)
        .args(arguments)
        .envs(secrets.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(COMMAND_DEADLINE, child)
        .await
        .map_err(|_| Error::Setup(format!("`{shown}` took longer than {COMMAND_DEADLINE:?}")))?
        .map_err(|error| Error::Setup(format!("`{shown}` cannot be run: {error}")))?;
    if output.status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(Error::Setup(format!("`{shown}` failed ({}): {last}", output.status)))
}

/// Runs one of testbed's blocking calls where it may block.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> testbed::Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(call)
        .await
        .map_err(|error| Error::Setup(error.to_string()))?
        .map_err(setup)
}

#[allow(clippy::needless_pass_by_value)]
fn setup(error: testbed::Error) -> Error {
    Error::Setup(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_a_usage_error_that_says_what_to_do() {
        let error = find_program(Some(Path::new("/nonexistent/seckill"))).expect_err("missing");
        assert_eq!(error.exit_code(), 2);
        let error = find_program(None).expect_err("tests run in a folder without it");
        assert!(error.to_string().contains("--seckill"), "{error}");
    }

    #[tokio::test]
    async fn a_database_server_that_hangs_keeps_nobody_else_from_running() {
        let program = PathBuf::from("/nonexistent/seckill");
        let cluster = Cluster::start(Flavor::Any, program, &[]).await.expect("the servers");
        cluster.database.freeze().expect("frozen");
        let (flags, needs) = (Vec::new(), Needs::Nothing);
        let spec = Spec { number: 0, replicas: 1, flags, needs, page_port: None };
        let patience = Duration::from_millis(200);
        let deployed = tokio::time::timeout(patience, cluster.deploy(spec)).await;
        cluster.database.thaw().expect("thawed");
        assert!(deployed.is_err(), "the timer had to wait for the server: {deployed:?}");
    }
}
