//! A replica of a service: any program that serves HTTP, prints its address, and tells when it is
//! ready.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use crate::bed_state::BedState;
use crate::error::{Error, Result};
use crate::ports;
use crate::probe::Probe;
use crate::process::{Process, ProcessSpec, start_on_free_port};

/// In arguments, this stands for an address that the testbed chooses.
const ANY_PORT: &str = "127.0.0.1:0";

/// How to start a replica.
///
/// The program has to print `listening on http://127.0.0.1:PORT` on a line of its own, and to
/// answer `GET /readyz` with 200 once it can work. Where an argument contains `127.0.0.1:0`, a free
/// port is put in, which it keeps over restarts.
#[derive(Clone)]
pub struct ReplicaSpec {
    /// Its name, for the log and for messages; it need not be unique.
    pub name: String,
    /// The program, looked up by path.
    pub program: PathBuf,
    /// Its arguments. Every user of the machine can read them, so secrets belong into `env`.
    pub args: Vec<String>,
    /// Its environment, besides a few harmless variables such as `PATH` and `RUST_LOG`.
    pub env: Vec<(String, String)>,
}

/// A running replica. Derefs to its [`Process`].
#[derive(Debug)]
pub struct Replica {
    process: Process,
    address: SocketAddr,
    base_url: String,
}

impl ReplicaSpec {
    /// A replica without arguments.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), program: program.into(), args: vec![], env: vec![] }
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }
}

/// Without the values of the environment, which hold secrets.
impl fmt::Debug for ReplicaSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&String> = self.env.iter().map(|(key, _)| key).collect();
        f.debug_struct("ReplicaSpec")
            .field("name", &self.name)
            .field("program", &self.program)
            .field("args", &self.args)
            .field("env", &keys)
            .finish()
    }
}

impl Replica {
    pub(crate) fn start(bed: &Arc<BedState>, spec: ReplicaSpec) -> Result<Self> {
        let ReplicaSpec { name, program, args, env } = spec;
        let program = program
            .canonicalize()
            .map_err(Error::io(format!("find the program {}", program.display())))?;
        let needs_free_port = args.iter().any(|arg| arg.contains(ANY_PORT));
        let start = || {
            let bind = ports::free_address()?.to_string();
            let address = Arc::default();
            let process_spec = ProcessSpec {
                name: bed.unique_name(&name),
                program: program.clone(),
                args: args.iter().map(|arg| arg.replace(ANY_PORT, &bind).into()).collect(),
                env: env.clone(),
                probe: Probe::Replica { address: Arc::clone(&address) },
            };
            let process = Process::start(bed, process_spec)?;
            let address: SocketAddr = *address.get().expect("a ready replica told its address");
            Ok(Self { process, address, base_url: format!("http://{address}") })
        };
        if needs_free_port { start_on_free_port(start) } else { start() }
    }

    /// `http://127.0.0.1:port`, without a slash at the end.
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }
}

impl Deref for Replica {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}
