//! A private etcd: one server, which stands alone or is a member of a cluster.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bed_state::{BedState, create_private_folder};
use crate::ensemble::EnsembleMember;
use crate::error::{Error, Result};
use crate::ports;
use crate::probe::{Probe, http_get_until};
use crate::process::{Process, ProcessSpec, start_on_free_port};

/// The packages, as Debian calls them.
const SERVER_PACKAGE: &str = "etcd-server";
const CLIENT_PACKAGE: &str = "etcd-client";
/// How long one command of `etcdctl` may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the end of a command is looked for.
const POLL: Duration = Duration::from_millis(5);

/// How an [`Etcd`] differs from the usual one. Whatever it is told is on disk before it is
/// acknowledged, so a restart loses nothing.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// How often a leader tells the others that it is there.
    pub heartbeat_ms: u32,
    /// After how long without that a member wants to lead. A lease lasts for one and a half of
    /// these at least, in whole seconds.
    pub election_timeout_ms: u32,
    /// More arguments; later ones win over earlier ones.
    pub extra: Vec<String>,
}

impl Default for EtcdOptions {
    /// Elections after half a second, and so leases from a second on.
    fn default() -> Self {
        Self { heartbeat_ms: 100, election_timeout_ms: 500, extra: vec![] }
    }
}

/// A running etcd server. Derefs to its [`Process`].
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    address: SocketAddr,
    endpoint: String,
    etcdctl: Option<PathBuf>,
}

/// How a server is started.
pub(crate) struct EtcdPlan<'a> {
    pub(crate) bed: &'a Arc<BedState>,
    pub(crate) options: EtcdOptions,
    etcd: PathBuf,
}

/// The place of a server in a cluster.
pub(crate) struct EtcdMembership {
    /// In the list of members.
    pub(crate) name: String,
    /// Where it listens for the other members.
    pub(crate) listens: SocketAddr,
    /// The URL by which the list of members knows it.
    pub(crate) url: String,
    /// `name=url,name=url`
    pub(crate) all: String,
    /// By which it reaches the others; they are not on this machine, as far as it knows.
    pub(crate) http_proxy: Option<SocketAddr>,
}

impl EtcdMembership {
    fn alone() -> Result<Self> {
        let listens = ports::free_address()?;
        let url = format!("http://{listens}");
        let all = format!("alone={url}");
        Ok(Self { name: "alone".into(), listens, url, all, http_proxy: None })
    }
}

impl<'a> EtcdPlan<'a> {
    pub(crate) fn new(bed: &'a Arc<BedState>, options: EtcdOptions) -> Result<Self> {
        let etcd = bed.programs.need("etcd", SERVER_PACKAGE)?;
        Ok(Self { bed, options, etcd })
    }

    /// Starts one that clients reach at that address. A member is ready once a majority runs.
    pub(crate) fn start(&self, address: SocketAddr, membership: &EtcdMembership) -> Result<Etcd> {
        let Self { bed, options, etcd } = self;
        let name = bed.unique_name("etcd");
        let data = bed.path(&name);
        create_private_folder(&data)?;
        let endpoint = address.to_string();
        let clients = format!("http://{endpoint}");
        let (heartbeat, election) = (options.heartbeat_ms, options.election_timeout_ms);
        let mut args: Vec<OsString> = vec!["--data-dir".into(), data.into()];
        args.extend(
            [
                format!("--name={}", membership.name),
                format!("--listen-client-urls={clients}"),
                format!("--advertise-client-urls={clients}"),
                format!("--listen-peer-urls=http://{}", membership.listens),
                format!("--initial-advertise-peer-urls={}", membership.url),
                format!("--initial-cluster={}", membership.all),
                format!("--heartbeat-interval={heartbeat}"),
                format!("--election-timeout={election}"),
                "--logger=zap".into(),
                "--log-outputs=stderr".into(),
            ]
            .map(OsString::from),
        );
        args.extend(options.extra.iter().map(OsString::from));
        let proxy = membership.http_proxy;
        let env = proxy.map(|proxy| ("HTTP_PROXY".to_owned(), format!("http://{proxy}")));
        let process = Process::start(
            bed,
            ProcessSpec {
                name,
                program: etcd.clone(),
                args,
                env: env.into_iter().collect(),
                probe: Probe::Etcd { address },
            },
        )?;
        Ok(Etcd { process, address, endpoint, etcdctl: bed.programs.find("etcdctl") })
    }
}

impl Etcd {
    pub(crate) fn start(bed: &Arc<BedState>, options: EtcdOptions) -> Result<Self> {
        let plan = EtcdPlan::new(bed, options)?;
        start_on_free_port(|| plan.start(ports::free_address()?, &EtcdMembership::alone()?))
    }

    /// Where clients reach it.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// `127.0.0.1:port`, as clients want it.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Whether that line is among its metrics.
    fn says(&self, line: &str) -> bool {
        let name = line.split(' ').next().unwrap_or_default();
        let begin = format!("\n{name} ");
        let is_read = |text: &str| text.split(&begin).nth(1).is_some_and(|it| it.contains('\n'));
        http_get_until(self.address, "/metrics", is_read)
            .is_ok_and(|text| text.contains(&format!("\n{line}\n")))
    }

    /// What etcd's own client prints for these arguments, in its version 3 of the API.
    ///
    /// # Errors
    /// If it is not installed, fails, or has not ended after ten seconds.
    pub fn etcdctl(&self, args: &[&str]) -> Result<String> {
        let missing = || Error::MissingProgram {
            program: "etcdctl".into(),
            searched: "the folders of programs".into(),
            package: CLIENT_PACKAGE,
        };
        let mut command = Command::new(self.etcdctl.as_ref().ok_or_else(missing)?);
        command.args(args).env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", &self.endpoint);
        let failed = |reason: String| self.failed(format!("etcdctl {args:?}: {reason}"));
        let (stdout, stderr) = (std::process::Stdio::piped(), std::process::Stdio::piped());
        let spawned = command.stdout(stdout).stderr(stderr).spawn();
        let mut child = spawned.map_err(Error::io("start etcdctl"))?;
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        while child.try_wait().map_err(Error::io("await etcdctl"))?.is_none() {
            if Instant::now() >= deadline {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!("has not ended within {COMMAND_TIMEOUT:?}")));
            }
            sleep(POLL);
        }
        let output = child.wait_with_output().map_err(Error::io("read etcdctl"))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Deref for Etcd {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl EnsembleMember for Etcd {
    fn leads(&self) -> bool {
        self.says("etcd_server_is_leader 1")
    }

    fn follows(&self) -> bool {
        self.says("etcd_server_has_leader 1") && !self.leads()
    }

    fn is_apart(&self) -> bool {
        self.says("etcd_server_has_leader 0")
    }
}
