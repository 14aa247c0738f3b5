//! The proxy that ships with the service, in front of replicas of this bed.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;

use crate::bed::{Inner, write_private};
use crate::error::Result;
use crate::ports;
use crate::probe::Probe;
use crate::process::{Process, Recipe, start_on_free_port};

/// The configuration that ships. Addresses come from the environment; only the servers, which a
/// deployment finds by DNS, are put in here.
const TEMPLATE: &str = include_str!("../../deploy/haproxy.cfg");

/// The lines of the template between which the servers stand.
const SERVERS_BEGIN: &str = "    # servers: begin";
const SERVERS_END: &str = "    # servers: end";

/// A running proxy. Derefs to its [`Process`].
#[derive(Debug)]
pub struct Haproxy {
    process: Process,
    url: String,
    operator_url: String,
}

impl Haproxy {
    pub(crate) fn start(
        bed: &Arc<Inner>,
        port: Option<u16>,
        replicas: &[SocketAddr],
    ) -> Result<Self> {
        let program = bed.programs.need("haproxy", "haproxy")?;
        start_on_free_port(|| {
            let name = bed.unique_name("haproxy");
            let given = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            let public = given.map_or_else(ports::free_address, Ok)?;
            let operator = ports::free_address()?;
            let config = bed.path(&format!("{name}.cfg"));
            write_private(&config, &render(replicas))?;
            let recipe = Recipe {
                name,
                program: program.clone(),
                args: vec!["-db".into(), "-f".into(), config.into()],
                env: vec![
                    ("SECKILL_PUBLIC_BIND".into(), public.to_string()),
                    ("SECKILL_OPERATOR_BIND".into(), operator.to_string()),
                ],
                probe: Probe::Listens { addresses: vec![public, operator] },
            };
            Ok(Self {
                process: Process::start(bed, recipe)?,
                url: format!("http://{public}"),
                operator_url: format!("http://{operator}"),
            })
        })
    }

    /// What everybody may reach: `http://127.0.0.1:port`, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The operators' listener, which also passes `/metrics`, `/readyz` and the audit.
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
