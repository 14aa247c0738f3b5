//! A private Redis.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use uuid::Uuid;

use crate::bed_state::{BedState, create_private_folder, write_private};
use crate::certificates::Certificates;
use crate::error::{Error, Result};
use crate::ports;
use crate::probe::Probe;
use crate::process::{Process, ProcessSpec, start_on_free_port};
use crate::programs::REDIS_SERVER;
use crate::redis_settings::{cluster_settings, settings};
use crate::resp::{Failure, RespConnection};
use crate::shim::{Dial, Shim};

/// How long [`Redis::command`] waits for an answer.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// Valkey 9.1 reads the wall clock once a millisecond, and in between adds what its monotonic clock
/// says (its pull request 3193). Redis reads it for each command.
const CLOCK_READ_WITHIN: Duration = Duration::from_millis(5);

/// How a [`Redis`] differs from the usual one, which keeps nothing on disk and evicts nothing.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct RedisOptions {
    /// Keeps an append-only file, written through at every command: a restart loses nothing.
    pub appendonly: bool,
    /// Replicates this server, and is ready when it has all that was there.
    pub replica_of: Option<RedisMaster>,
    /// A user besides the default one, with a password of its own; the URLs are this user's.
    pub user: Option<String>,
    /// What that user may do, as ACL rules; everything by default.
    pub rights: Option<String>,
    /// The number of the database that the URLs name.
    pub database: u8,
    /// Listens for TLS as well, on a port of its own.
    pub tls: bool,
    /// Is a node of a cluster, which knows no other node and has no slot yet; see
    /// [`RedisCluster`](crate::RedisCluster).
    pub cluster: bool,
    /// Has a clock that [`Redis::jump_clock`] can set.
    pub clock: bool,
    /// Has a disk that [`Redis::stall_disk`] can stall.
    pub disk: bool,
    /// Has a disk that [`Redis::fill_disk`] can fill.
    pub disk_space: bool,
    /// More lines of `redis.conf`; later lines win over earlier ones.
    pub extra: Vec<String>,
}

/// What a replica needs to know of its master. The address may be that of a proxy before it.
#[derive(Clone, Debug)]
pub struct RedisMaster {
    /// Where it listens.
    pub addr: SocketAddr,
    /// The password of its default user.
    pub password: String,
}

/// A running Redis server. Derefs to its [`Process`].
#[derive(Debug)]
pub struct Redis {
    process: Process,
    access: Access,
    clock: Option<Shim>,
    disk: Option<Shim>,
    disk_space: Option<Shim>,
}

/// How clients get in.
#[derive(Debug)]
struct Access {
    address: SocketAddr,
    /// Of the default user.
    password: String,
    /// The other user, with a password.
    user: Option<(String, String)>,
    socket: PathBuf,
    rights: Option<String>,
    url: String,
    admin_url: String,
    unix_url: String,
    tls: Option<Tls>,
}

#[derive(Debug)]
struct Tls {
    url: String,
    address: SocketAddr,
    certificates: Certificates,
}

/// What every try to start one has in common.
struct Plan<'a> {
    bed: &'a Arc<BedState>,
    program: PathBuf,
    options: RedisOptions,
    alike: Option<RedisCredentials>,
}

/// What several servers have in common.
#[derive(Clone, Debug)]
pub(crate) struct RedisCredentials {
    /// That of all users.
    pub(crate) password: String,
    /// Of those that listen for TLS.
    pub(crate) certificates: Option<Certificates>,
}

impl Redis {
    pub(crate) fn start(bed: &Arc<BedState>, options: RedisOptions) -> Result<Self> {
        let plan = Plan::new(bed, options, None)?;
        start_on_free_port(|| plan.start())
    }

    /// Starts `count` servers at the same time, with common credentials if there are any.
    pub(crate) fn start_alike(
        bed: &Arc<BedState>,
        count: usize,
        options: RedisOptions,
        alike: Option<RedisCredentials>,
    ) -> Result<Vec<Self>> {
        let plan = Plan::new(bed, options, alike)?;
        let start = || start_on_free_port(|| plan.start());
        thread::scope(|scope| {
            let starts: Vec<_> = (0..count).map(|_| scope.spawn(start)).collect();
            let ends = starts.into_iter().map(|start| start.join().expect("a start never panics"));
            ends.collect()
        })
    }

    /// `redis://:password@127.0.0.1:port/0`, with the user before the colon if there is one.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.access.url
    }

    /// `redis://:password@127.0.0.1:port/0` of the default user, which has all rights.
    #[must_use]
    pub fn admin_url(&self) -> &str {
        &self.access.admin_url
    }

    /// `rediss://:password@127.0.0.1:port/0`, if the options ask for TLS.
    #[must_use]
    pub fn tls_url(&self) -> Option<&str> {
        self.access.tls.as_ref().map(|tls| tls.url.as_str())
    }

    /// The certificate, in PEM, of the authority that a client of [`Redis::tls_url`] has to trust.
    #[must_use]
    pub fn ca_path(&self) -> Option<&Path> {
        self.access.tls.as_ref().map(|tls| tls.certificates.authority.as_path())
    }

    /// `redis+unix:///path?db=0&pass=password`, with `&user=` as well if there is a user.
    #[must_use]
    pub fn unix_url(&self) -> &str {
        &self.access.unix_url
    }

    /// Where it listens for TLS, if the options ask for that.
    pub(crate) fn tls_addr(&self) -> Option<SocketAddr> {
        self.access.tls.as_ref().map(|tls| tls.address)
    }

    /// Where replicas and sentinels find it: for TLS, if it listens for that.
    pub(crate) fn replication_addr(&self) -> SocketAddr {
        self.tls_addr().unwrap_or(self.access.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.access.address
    }

    /// For [`RedisOptions::replica_of`].
    #[must_use]
    pub fn as_master(&self) -> RedisMaster {
        RedisMaster { addr: self.access.address, password: self.access.password.clone() }
    }

    /// Gives one command as the default user, on a connection of its own. Returns the answer as
    /// `redis-cli` writes it into a pipe: nothing for nil, a line for each element of a list.
    ///
    /// # Errors
    /// If the server refuses it, or does not answer within 5 seconds.
    pub fn command(&self, words: &[&str]) -> Result<String> {
        self.connect().and_then(|mut connection| connection.command(words)).map_err(|failure| {
            Error::Redis {
                name: self.name().to_owned(),
                command: words.join(" "),
                message: failure.to_string(),
            }
        })
    }

    /// A connection of the default user.
    pub(crate) fn connect(&self) -> std::result::Result<RespConnection, Failure> {
        RespConnection::open(self.access.address, &self.access.password, COMMAND_LIMIT)
    }

    /// Makes a replica a master with what it has got so far, now and after a restart.
    ///
    /// # Errors
    /// As [`Redis::command`].
    pub fn promote(&self) -> Result<()> {
        self.command(&["REPLICAOF", "NO", "ONE"])?;
        self.command(&["CONFIG", "REWRITE"]).map(drop)
    }

    /// Sets the server's wall clock: this many milliseconds ahead of the true time, or behind it
    /// if negative. The next command sees it; so does a restarted server.
    ///
    /// # Errors
    /// If the options did not ask for such a clock.
    pub fn jump_clock(&self, offset_ms: i64) -> Result<()> {
        let Some(clock) = &self.clock else {
            return Err(self.failed("was started without `clock: true`".into()));
        };
        clock.set(offset_ms)?;
        thread::sleep(CLOCK_READ_WITHIN);
        Ok(())
    }

    /// Whether it has a clock that can be set.
    #[must_use]
    pub fn has_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// Stalls the server's disk, or lets it continue: it takes what is written, but waits before it
    /// says that it is safe. A killed server loses what it has not written because of that, and
    /// nothing else.
    ///
    /// # Errors
    /// If the options did not ask for such a disk.
    pub fn stall_disk(&self, stalled: bool) -> Result<()> {
        match &self.disk {
            Some(disk) => disk.set(stalled.into()),
            None => Err(self.failed("was started without `disk: true`".into())),
        }
    }

    /// Fills the server's disk, so that no file gets another block, or makes space on it.
    ///
    /// # Errors
    /// If the options did not ask for such a disk.
    pub fn fill_disk(&self, full: bool) -> Result<()> {
        self.disk_space()?.set(full.into())
    }

    /// How many of its writes have failed because its disk was full.
    ///
    /// # Errors
    /// If the options did not ask for such a disk.
    pub fn writes_without_space(&self) -> Result<i64> {
        self.disk_space()?.count()
    }

    fn disk_space(&self) -> Result<&Shim> {
        let missing = || self.failed("was started without `disk_space: true`".into());
        self.disk_space.as_ref().ok_or_else(missing)
    }
}

impl<'a> Plan<'a> {
    fn new(
        bed: &'a Arc<BedState>,
        options: RedisOptions,
        alike: Option<RedisCredentials>,
    ) -> Result<Self> {
        let program = bed.programs.redis_server(&bed.path(REDIS_SERVER))?;
        Ok(Self { bed, program, options, alike })
    }

    fn start(&self) -> Result<Redis> {
        let (bed, options) = (self.bed, &self.options);
        let name = bed.unique_name("redis");
        let data = bed.path(&name);
        create_private_folder(&data)?;
        let access = Access::choose(bed, &name, options, self.alike.clone())?;
        let shim = |dial| Shim::start(bed, &name, dial);
        let clock = options.clock.then(|| shim(Dial::Clock)).transpose()?;
        let disk = options.disk.then(|| shim(Dial::Disk)).transpose()?;
        let disk_space = options.disk_space.then(|| shim(Dial::FullDisk)).transpose()?;
        let config = bed.path(&format!("{name}.conf"));
        let data = format!("dir \"{}\"\n", data.display());
        let mut lines = access.settings() + &data + &settings(options);
        if options.cluster {
            lines += &cluster_settings(&access.password, options.tls)?;
        }
        write_private(&config, &lines)?;
        let probe = Probe::Redis { address: access.address, password: access.password.clone() };
        let process_spec = ProcessSpec {
            name,
            program: self.program.clone(),
            args: vec![config.into()],
            env: Shim::env(clock.iter().chain(&disk).chain(&disk_space)),
            probe,
        };
        Ok(Redis { process: Process::start(bed, process_spec)?, access, clock, disk, disk_space })
    }
}

impl Deref for Redis {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Access {
    fn choose(
        bed: &Arc<BedState>,
        name: &str,
        options: &RedisOptions,
        alike: Option<RedisCredentials>,
    ) -> Result<Self> {
        let of_user = alike.as_ref().map_or_else(secret, |alike| alike.password.clone());
        let (password, certificates) = match alike {
            Some(RedisCredentials { password, certificates }) => (password, certificates),
            None => (secret(), None),
        };
        let address = ports::free_address()?;
        let user = options.user.as_ref().map(|user| (user.clone(), of_user));
        let socket = bed.path(&format!("{name}.sock"));
        let database = options.database;
        let (login, query) = match &user {
            Some((user, password)) => {
                (format!("{user}:{password}"), format!("user={user}&pass={password}"))
            }
            None => (format!(":{password}"), format!("pass={password}")),
        };
        let url = |scheme, address| format!("{scheme}://{login}@{address}/{database}");
        let unix_url = format!("redis+unix://{}?db={database}&{query}", socket.display());
        let tls = || -> Result<Tls> {
            let address = ports::free_address()?;
            let certificates = match certificates {
                Some(certificates) => certificates,
                None => Certificates::create(bed, name)?,
            };
            Ok(Tls { url: url("rediss", address), address, certificates })
        };
        let tls = options.tls.then(tls).transpose()?;
        Ok(Self {
            address,
            url: url("redis", address),
            admin_url: format!("redis://:{password}@{address}/{database}"),
            password,
            user,
            rights: options.rights.clone(),
            socket,
            unix_url,
            tls,
        })
    }

    fn settings(&self) -> String {
        let mut lines = vec![
            format!("bind {}", self.address.ip()),
            format!("port {}", self.address.port()),
            format!("unixsocket \"{}\"", self.socket.display()),
            "unixsocketperm 700".into(),
            format!("requirepass {}", self.password),
        ];
        if let Some((user, password)) = &self.user {
            let rights = self.rights.as_deref().unwrap_or("~* &* +@all");
            lines.push(format!("user {user} on >{password} {rights}"));
        }
        if let Some(Tls { address, certificates, .. }) = &self.tls {
            lines.extend([
                format!("tls-port {}", address.port()),
                format!("tls-cert-file \"{}\"", certificates.certificate.display()),
                format!("tls-key-file \"{}\"", certificates.key.display()),
                format!("tls-ca-cert-file \"{}\"", certificates.authority.display()),
                "tls-auth-clients no".into(),
            ]);
        }
        lines.join("\n") + "\n"
    }
}

pub(crate) fn secret() -> String {
    Uuid::new_v4().simple().to_string()
}
