//! A private NATS server with `JetStream`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use crate::bed_state::{BedState, create_private_folder};
use crate::error::Result;
use crate::ports;
use crate::probe::Probe;
use crate::process::{Process, ProcessSpec, start_on_free_port};

/// The package, as Debian calls it.
const PACKAGE: &str = "nats-server";

/// How a [`Nats`] differs from the usual one.
#[derive(Clone, Debug, Default)]
pub struct NatsOptions {
    /// The user and the password without which clients are refused.
    pub login: Option<[String; 2]>,
}

/// A running NATS server with `JetStream`, whose files survive a restart. Derefs to its
/// [`Process`].
#[derive(Debug)]
pub struct Nats {
    process: Process,
    address: SocketAddr,
    url: String,
}

impl Nats {
    pub(crate) fn start(bed: &Arc<BedState>, options: &NatsOptions) -> Result<Self> {
        let program = bed.programs.need("nats-server", PACKAGE)?;
        start_on_free_port(|| {
            let address = ports::free_address()?;
            let name = bed.unique_name("nats");
            let data = bed.path(&name);
            create_private_folder(&data)?;
            let (host, port) = (address.ip().to_string(), address.port().to_string());
            let mut args: Vec<OsString> =
                ["--addr", &host, "--port", &port, "--jetstream"].map(OsString::from).into();
            args.extend(["--store_dir".into(), OsString::from(data)]);
            if let Some([user, password]) = &options.login {
                args.extend(["--user", user, "--pass", password].map(OsString::from));
            }
            let login = options.login.clone();
            let probe = Probe::Nats { address, login };
            let spec = ProcessSpec { name, program: program.clone(), args, env: vec![], probe };
            let process = Process::start(bed, spec)?;
            let login = options.login.as_ref();
            let login =
                login.map_or(String::new(), |[user, password]| format!("{user}:{password}@"));
            Ok(Self { process, address, url: format!("nats://{login}{address}") })
        })
    }

    /// Where clients reach it.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// `nats://127.0.0.1:port`, with the login if it has one.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Deref for Nats {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}
