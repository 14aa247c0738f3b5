//! The proxy that ships with the service, in front of replicas of this bed.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit};

use crate::bed_state::{BedState, write_private};
use crate::error::Result;
use crate::ports;
use crate::probe::Probe;
use crate::process::{Process, ProcessSpec, start_on_free_port};

/// The configuration that ships. Addresses come from the environment; only the servers, which a
/// deployment finds by DNS, are put in here.
const TEMPLATE: &str = include_str!("../haproxy.cfg");

/// The lines of the template between which the servers stand.
const SERVERS_BEGIN: &str = "    # servers: begin";
const SERVERS_END: &str = "    # servers: end";

/// The limit of connections from one address, for load generators that are all on 127.0.0.1.
const SOURCE_LIMIT: (&str, &str) = ("SECKILL_MAXCONN_SOURCE", "4096");

/// The connections of clients that the template admits.
const MAX_CONNECTIONS: u64 = 4096;
/// Files that HAProxy opens besides, and some more.
const OWN_FILES: u64 = 256;

/// Settings of a proxy.
#[derive(Debug, Clone, Default)]
pub struct HaproxyOptions {
    /// The port of the public listener on 127.0.0.1; a free one if `None`.
    pub port: Option<u16>,
    /// Variables of the configuration that ships; they win over what a bed sets itself.
    pub env: Vec<(String, String)>,
}

/// The connections that are its own limit, if enough files may be open: it does not start if there
/// are too few for them. A connection takes two, and it opens some itself.
fn most_connections() -> u64 {
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(_, hard)| hard);
    (most.saturating_sub(OWN_FILES) / 2).clamp(1, MAX_CONNECTIONS)
}

/// A running proxy. Derefs to its [`Process`].
#[derive(Debug)]
pub struct Haproxy {
    process: Process,
    url: String,
    operator_url: String,
}

impl Haproxy {
    pub(crate) fn start(
        bed: &Arc<BedState>,
        options: &HaproxyOptions,
        replicas: &[SocketAddr],
    ) -> Result<Self> {
        let program = bed.programs.need("haproxy", "haproxy")?;
        start_on_free_port(|| {
            let name = bed.unique_name("haproxy");
            let given = options.port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            let public = given.map_or_else(ports::free_address, Ok)?;
            let operator = ports::free_address()?;
            let config = bed.path(&format!("{name}.cfg"));
            write_private(&config, &render(replicas))?;
            let own = [
                ("SECKILL_PUBLIC_BIND".into(), public.to_string()),
                ("SECKILL_OPERATOR_BIND".into(), operator.to_string()),
                (SOURCE_LIMIT.0.into(), SOURCE_LIMIT.1.into()),
                ("SECKILL_MAXCONN".into(), most_connections().to_string()),
            ];
            let process_spec = ProcessSpec {
                name,
                program: program.clone(),
                args: vec!["-db".into(), "-f".into(), config.into()],
                env: own.into_iter().chain(options.env.clone()).collect(),
                probe: Probe::Listens { addresses: vec![public, operator] },
            };
            Ok(Self {
                process: Process::start(bed, process_spec)?,
                url: format!("http://{public}"),
                operator_url: format!("http://{operator}"),
            })
        })
    }

    /// The public address: `http://127.0.0.1:port`, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The operators' listener, which also passes `/metrics`, `/readyz` and the audit.
    #[must_use]
    pub fn operator_url(&self) -> &str {
        &self.operator_url
    }
}

impl Deref for Haproxy {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

/// The template with these servers. Without any, the proxy answers 503.
fn render(replicas: &[SocketAddr]) -> String {
    let servers: Vec<String> = replicas
        .iter()
        .enumerate()
        .map(|(index, address)| format!("    server replica{} {address} check\n", index + 1))
        .collect();
    let (head, rest) = TEMPLATE.split_once(SERVERS_BEGIN).expect("the template marks its servers");
    let (_, tail) = rest.split_once(SERVERS_END).expect("the template marks its servers' end");
    format!("{head}{}{tail}", servers.concat())
}
