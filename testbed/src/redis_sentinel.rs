//! A private Redis with replicas, and the sentinels that watch them.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bed_state::{BedState, create_private_folder, write_private};
use crate::certificates::Certificates;
use crate::error::{Error, Result};
use crate::ports;
use crate::probe::Probe;
use crate::process::{Process, ProcessSpec, start_on_free_port};
use crate::programs::REDIS_SERVER;
use crate::redis::{Redis, RedisCredentials, RedisOptions, secret};
use crate::resp::{Failure, RespConnection};
use crate::stopwatch::Stopwatch;

/// What the sentinels call the service.
const SERVICE: &str = "shop";
/// How many sentinels there are, and how many must agree that the master is down.
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// How many servers replicate the first one.
const REPLICAS: usize = 2;
/// How long a master may be silent before a sentinel takes it for dead.
const DOWN_AFTER: Duration = Duration::from_millis(500);
/// How long a failover may take until another one is tried.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(3);
/// How long all have to agree, and how long a promotion is awaited.
const AGREE_WITHIN: Duration = Duration::from_secs(30);
/// How long a sentinel may take to answer: it may stand still for a moment.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);
/// A server that says no more within that is no master.
const ROLE_LIMIT: Duration = Duration::from_secs(1);

/// How a [`RedisSentinel`] differs from the usual one.
#[derive(Clone, Debug, Default)]
pub struct SentinelOptions {
    /// How the servers with the data differ; `replica_of` and `cluster` are not for these.
    pub redis: RedisOptions,
    /// The sentinels want the password of the default user, too.
    pub guarded: bool,
}

/// One master, two replicas and three sentinels, which make a replica the master when the master is
/// dead. All servers have the same password.
#[derive(Debug)]
pub struct RedisSentinel {
    nodes: Vec<Arc<Redis>>,
    sentinels: Vec<Sentinel>,
    login: String,
    database: u8,
    tls: bool,
}

/// A running sentinel. Derefs to its [`Process`].
#[derive(Debug)]
pub struct Sentinel {
    process: Process,
    address: SocketAddr,
    tls_address: Option<SocketAddr>,
    /// If it wants one.
    password: Option<String>,
}

impl RedisSentinel {
    pub(crate) fn start(bed: &Arc<BedState>, options: SentinelOptions) -> Result<Self> {
        let SentinelOptions { mut redis, guarded } = options;
        let (tls, database) = (redis.tls, redis.database);
        let certificates =
            tls.then(|| Certificates::create(bed, &bed.unique_name("sentinel"))).transpose()?;
        let password = secret();
        let alike = RedisCredentials { password: password.clone(), certificates };
        // The master may become a replica.
        redis.extra.push(format!("masterauth {password}"));
        if tls {
            redis.extra.push("tls-replication yes".into());
        }
        let start = |redis, count| -> Result<Vec<_>> {
            let nodes = Redis::start_alike(bed, count, redis, Some(alike.clone()))?;
            Ok(nodes.into_iter().map(Arc::new).collect())
        };
        let mut nodes = start(redis.clone(), 1)?;
        let mut master = nodes[0].as_master();
        master.addr = nodes[0].replication_addr();
        redis.replica_of = Some(master.clone());
        nodes.extend(start(redis, REPLICAS)?);
        let plan = SentinelPlan { bed, master: master.addr, credentials: alike, guarded };
        let sentinels: Result<Vec<_>> =
            (0..SENTINELS).map(|_| start_on_free_port(|| plan.start())).collect();
        let login = nodes[0].url().split_once('@').map_or("", |(login, _)| login);
        let login = login.trim_start_matches("redis://").to_owned();
        let group = Self { nodes, sentinels: sentinels?, login, database, tls };
        group.agree("they know of one another", Self::is_whole)?;
        Ok(group)
    }

    /// `redis+sentinel://login@127.0.0.1:port,127.0.0.1:port,127.0.0.1:port/service/0`;
    /// `rediss+sentinel://` if they speak TLS.
    #[must_use]
    pub fn url(&self) -> String {
        let address = |one: &Sentinel| one.tls_address.unwrap_or(one.address).to_string();
        let hosts = self.sentinels.iter().map(address).collect::<Vec<_>>().join(",");
        let scheme = if self.tls { "rediss" } else { "redis" };
        format!("{scheme}+sentinel://{}@{hosts}/{SERVICE}/{}", self.login, self.database)
    }

    /// The servers with the data. The first one was the master at the start.
    #[must_use]
    pub fn nodes(&self) -> &[Arc<Redis>] {
        &self.nodes
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Sentinel] {
        &self.sentinels
    }

    /// Which of the nodes most sentinels name, if they do.
    #[must_use]
    pub fn master(&self) -> Option<usize> {
        let masters: Vec<_> = self.sentinels.iter().map(Sentinel::master).collect();
        let is_named = |node: &Arc<Redis>| {
            let address = Some(node.replication_addr());
            masters.iter().filter(|master| **master == address).count() >= QUORUM
        };
        self.nodes.iter().position(is_named)
    }

    /// Has a replica promoted although the master lives.
    ///
    /// # Errors
    /// If the first sentinel refuses it: no replica is good enough, or a failover is under way.
    pub fn fail_over(&self) -> Result<()> {
        self.sentinels[0].command(&["SENTINEL", "FAILOVER", SERVICE]).map(drop)
    }

    /// Waits until a sentinel names another master than `former`, which says so too. Which one, and
    /// a watch that began then.
    ///
    /// # Errors
    /// If there is none within 30 seconds.
    pub fn await_promotion(&self, former: usize) -> Result<(usize, Stopwatch)> {
        let mut promoted = None;
        self.agree("a replica is promoted", |group| {
            let masters: Vec<_> = group.sentinels.iter().filter_map(Sentinel::master).collect();
            let is_master = |(at, node): &(usize, &Arc<Redis>)| {
                *at != former && masters.contains(&node.replication_addr()) && is_master(node)
            };
            promoted = group.nodes.iter().enumerate().find(is_master).map(|(at, _)| at);
            Ok(promoted.is_some())
        })?;
        Ok((promoted.unwrap_or_default(), Stopwatch::start()))
    }

    /// Waits until a node replicates the master, as an old master does some time after its return.
    ///
    /// # Errors
    /// If it does not within 30 seconds.
    pub fn await_demotion(&self, node: usize) -> Result<()> {
        self.agree("the old master is a replica", |group| {
            let said = group.nodes[node].command(&["INFO", "replication"]).unwrap_or_default();
            Ok(said.contains("master_link_status:up"))
        })
    }

    /// Whether each sentinel knows the others and all replicas.
    ///
    /// # Errors
    /// If one of them does not answer.
    pub fn is_whole(&self) -> Result<bool> {
        let all = [("num-slaves", REPLICAS), ("num-other-sentinels", SENTINELS - 1)];
        for sentinel in &self.sentinels {
            let said = sentinel.command(&["SENTINEL", "MASTER", SERVICE])?;
            let lines: Vec<_> = said.lines().collect();
            let has = |field: &str| lines.windows(2).find(|two| two[0] == field).map(|two| two[1]);
            let is_known = |(field, count): &(&str, usize)| has(field) == Some(&count.to_string());
            if !all.iter().all(is_known) || has("flags") != Some("master") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn agree(&self, what: &str, mut agreed: impl FnMut(&Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + AGREE_WITHIN;
        while !agreed(self)? {
            if Instant::now() > deadline {
                let reason = format!("did not see within {AGREE_WITHIN:?} that {what}");
                return Err(self.sentinels[0].failed(reason));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Whether it says so. One that is frozen or dead does not.
fn is_master(node: &Redis) -> bool {
    let asked = || -> std::result::Result<String, Failure> {
        let password = node.as_master().password;
        RespConnection::open(node.addr(), &password, ROLE_LIMIT)?.command(&["ROLE"])
    };
    asked().is_ok_and(|role| role.starts_with("master"))
}

impl Sentinel {
    /// Gives one command. Returns the answer as [`Redis::command`] does.
    ///
    /// # Errors
    /// If it refuses it, or does not answer within five seconds.
    pub fn command(&self, words: &[&str]) -> Result<String> {
        let asked = || {
            let mut connection = match &self.password {
                Some(password) => RespConnection::open(self.address, password, COMMAND_LIMIT)?,
                None => RespConnection::connect(self.address, COMMAND_LIMIT)?,
            };
            connection.command(words)
        };
        asked().map_err(|failure: Failure| Error::Redis {
            name: self.name().to_owned(),
            command: words.join(" "),
            message: failure.to_string(),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The address of the master, as this one knows it.
    #[must_use]
    pub fn master(&self) -> Option<SocketAddr> {
        let said = self.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).ok()?;
        let (ip, port) = said.split_once('\n')?;
        format!("{ip}:{port}").parse().ok()
    }
}

impl Deref for Sentinel {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

/// What every try to start a sentinel has in common.
struct SentinelPlan<'a> {
    bed: &'a Arc<BedState>,
    master: SocketAddr,
    credentials: RedisCredentials,
    guarded: bool,
}

impl SentinelPlan<'_> {
    fn start(&self) -> Result<Sentinel> {
        let program = self.bed.programs.redis_server(&self.bed.path(REDIS_SERVER))?;
        let name = self.bed.unique_name("sentinel");
        let (data, address) = (self.bed.path(&name), ports::free_address()?);
        let tls_address = self.credentials.certificates.as_ref().map(|_| ports::free_address());
        let tls_address = tls_address.transpose()?;
        create_private_folder(&data)?;
        let config = self.bed.path(&format!("{name}.conf"));
        let settings =
            format!("dir \"{}\"\n{}", data.display(), self.settings(address, tls_address));
        write_private(&config, &settings)?;
        let probe = Probe::Listens { addresses: vec![address] };
        let args = vec![config.into(), "--sentinel".into()];
        let process_spec = ProcessSpec { name, program, args, env: Vec::new(), probe };
        let password = self.guarded.then(|| self.credentials.password.clone());
        let process = Process::start(self.bed, process_spec)?;
        Ok(Sentinel { process, address, tls_address, password })
    }

    fn settings(&self, address: SocketAddr, tls_address: Option<SocketAddr>) -> String {
        let (ip, port) = (self.master.ip(), self.master.port());
        let RedisCredentials { password, certificates } = &self.credentials;
        let (down, failover) = (DOWN_AFTER.as_millis(), FAILOVER_TIMEOUT.as_millis());
        let mut lines = vec![
            "daemonize no".to_owned(),
            format!("bind {}", address.ip()),
            format!("port {}", address.port()),
            format!("sentinel monitor {SERVICE} {ip} {port} {QUORUM}"),
            format!("sentinel auth-pass {SERVICE} {password}"),
            format!("sentinel down-after-milliseconds {SERVICE} {down}"),
            format!("sentinel failover-timeout {SERVICE} {failover}"),
            format!("sentinel parallel-syncs {SERVICE} {REPLICAS}"),
        ];
        if self.guarded {
            lines.push(format!("requirepass {password}"));
            lines.push(format!("sentinel sentinel-pass {password}"));
        }
        if let Some((tls, certificates)) = tls_address.zip(certificates.as_ref()) {
            lines.extend([
                format!("tls-port {}", tls.port()),
                "tls-replication yes".into(),
                format!("tls-cert-file \"{}\"", certificates.certificate.display()),
                format!("tls-key-file \"{}\"", certificates.key.display()),
                format!("tls-ca-cert-file \"{}\"", certificates.authority.display()),
                "tls-auth-clients no".into(),
            ]);
        }
        lines.join("\n") + "\n"
    }
}
