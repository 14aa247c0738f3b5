//! A private Redis.

use std::net::SocketAddr;
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use crate::bed::{Inner, create_private_folder, write_private};
use crate::error::{Error, Result};
use crate::ports;
use crate::probe::Probe;
use crate::process::{Process, Recipe, start_on_free_port};

/// How a [`Redis`] differs from the usual one, which keeps nothing on disk and evicts nothing.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// Keeps an append-only file, written through at every command: a restart loses nothing.
    pub appendonly: bool,
    /// More lines of `redis.conf`; later lines win over earlier ones.
    pub extra: Vec<String>,
}

/// A running Redis server. Derefs to its [`Process`].
#[derive(Debug)]
pub struct Redis {
    process: Process,
    address: SocketAddr,
    url: String,
}

impl Redis {
    pub(crate) fn start(bed: &Arc<Inner>, options: RedisOptions) -> Result<Self> {
        let settings = settings(options);
        let program = program(bed)?;
        start_on_free_port(|| {
            let name = bed.unique_name("redis");
            let address = ports::free_address()?;
            let password = Uuid::new_v4().simple().to_string();
            let data = bed.path(&name);
            create_private_folder(&data)?;
            let config = bed.path(&format!("{name}.conf"));
            let text = format!(
                "bind {}\nport {}\nrequirepass {password}\ndir \"{}\"\n{settings}",
                address.ip(),
                address.port(),
                data.display(),
            );
            write_private(&config, &text)?;
            let url = format!("redis://:{password}@{address}/0");
            let process = Process::start(
                bed,
                Recipe {
                    name,
                    program: program.clone(),
                    args: vec![config.into()],
                    env: vec![],
                    probe: Probe::Redis { address, password },
                },
            )?;
            Ok(Self { process, address, url })
        })
    }

    /// `redis://:password@127.0.0.1:port/0`
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }
}

impl Deref for Redis {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

/// The server's program. Debian's `redis-check-rdb` is the same executable, in a package without a
/// service: it becomes the server when called by the server's name.
fn program(bed: &Inner) -> Result<PathBuf> {
    const NAME: &str = "redis-server";
    if let Some(path) = bed.programs.find(NAME) {
        return Ok(path);
    }
    let Some(twin) = bed.programs.find("redis-check-rdb") else {
        return Err(bed.programs.missing(NAME, "redis-server or redis-tools"));
    };
    let link = bed.path(NAME);
    match symlink(&twin, &link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(Error::io(format!("create {}", link.display()))(error))
        }
        _ => Ok(link),
    }
}

/// What a restart and another port leave as it is. Later lines win over earlier ones.
fn settings(options: RedisOptions) -> String {
    let mut lines = vec![
        "daemonize no".to_owned(),
        "save \"\"".into(),
        // Locks and stock must never be evicted.
        "maxmemory-policy noeviction".into(),
    ];
    if options.appendonly {
        lines.extend(["appendonly yes".into(), "appendfsync always".into()]);
    }
    lines.extend(options.extra);
    lines.join("\n") + "\n"
}
