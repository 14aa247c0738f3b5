//! Contenders whose locks are shared with this library, and what only these can be asked. They are
//! Redisson and Curator on the JVM (`conformance/interop`), and the clients for Python, Go and Node
//! (`clients`).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testbed::Program;

use crate::driver::Contender;
use crate::protocol::{Command, Failure, LockInspection, Response, Setup};
use crate::servers::Servers;

/// How a JVM, and Redisson in it, starts fast and needs little.
pub(crate) const SMALL: [&str; 4] =
    ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-Dinterop.small=true"];

/// Whose locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Redisson 4.
    Redisson4,
    /// Redisson 3, of a version whose unlock script is older.
    Redisson3,
    /// Curator.
    Curator,
    /// The client for Python.
    Python,
    /// The client for Go.
    Go,
    /// The client for Node.
    Node,
}

impl Peer {
    /// The clients of this library in other languages.
    pub const CLIENTS: [Self; 3] = [Self::Python, Self::Go, Self::Node];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redisson4 => "redisson-4",
            Self::Redisson3 => "redisson-3",
            Self::Curator => "curator",
            Self::Python => "python",
            Self::Go => "go",
            Self::Node => "node",
        }
    }

    /// Whether it is a client of this library in another language.
    pub fn is_client(self) -> bool {
        Self::CLIENTS.contains(&self)
    }

    /// Where Maven has put its classes. Both have Curator.
    fn folder(self) -> PathBuf {
        let variant = if self == Self::Redisson3 { "redisson-3" } else { "redisson-4" };
        Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/target").join(variant)
    }

    /// Starts a JVM with these options and its library, for a class of ours and its arguments.
    pub(crate) fn program(
        self,
        servers: &Servers,
        name: &str,
        options: &[&str],
        class: &[&str],
    ) -> Program {
        let folder = self.folder();
        let libraries = fs::read_to_string(folder.join("classpath"));
        let libraries = libraries.expect("`make interop` builds the programs of the JVM");
        let classes = format!("{}:{}", folder.join("classes").display(), libraries.trim());
        let quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn";
        let args = [options, &[quiet, "-cp", &classes], class].concat();
        servers.bed().program(name, &find_program("java"), &args).expect("a JVM starts")
    }
}

/// A contender of a client, as `clients/prepare.sh` makes it.
fn client_program(peer: Peer, servers: &Servers) -> Program {
    let words: &[&str] = match peer {
        Peer::Python => &["target/clients/python/bin/python", "clients/python/contender/main.py"],
        Peer::Go => &["target/clients/go/contender"],
        _ => &["clients/node/dist/contender/main.js"],
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let words: Vec<_> = words.iter().map(|word| root.join(word).display().to_string()).collect();
    assert!(Path::new(&words[0]).exists(), "`clients/prepare.sh` makes the contender {words:?}");
    // Python finds its libraries by the path by which it is called, which is a link.
    let caller = match (peer, root.join("target/clients/bin/node")) {
        (Peer::Node, fetched) if fetched.exists() => fetched,
        (Peer::Node, _) => find_program("node"),
        _ => find_program("env"),
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let started = servers.bed().program(&format!("contender-{}", peer.name()), &caller, &words);
    started.expect("the contender starts")
}

impl Contender {
    /// Starts a contender of a client.
    pub fn start_client(servers: &Servers, peer: Peer, setup: &Setup) -> Self {
        Self::set_up(client_program(peer, servers), setup)
    }

    /// Starts a contender of a peer. Redisson renews its locks for so long at a time, whatever is
    /// asked for.
    pub fn start_peer(servers: &Servers, peer: Peer, setup: &Setup, renewed: Duration) -> Self {
        if peer.is_client() {
            return Self::start_client(servers, peer, setup);
        }
        let watchdog = format!("-Dinterop.watchdog_ms={}", renewed.as_millis());
        let options = [&SMALL[..], &[&watchdog]].concat();
        let name = format!("contender-{}", peer.name());
        let program = peer.program(servers, &name, &options, &["interop.Main"]);
        Self::set_up(program, setup)
    }

    /// Starts a contender with the defaults of the JVM and of Redisson, as a service would run it:
    /// for what is timed.
    pub fn start_usual_peer(servers: &Servers, peer: Peer, setup: &Setup) -> Self {
        let name = format!("contender-{}", peer.name());
        let program = peer.program(servers, &name, &["-Xmx512m"], &["interop.Main"]);
        Self::set_up(program, setup)
    }

    /// Looks at a lock of the kind `redisson` from outside.
    pub fn inspect(&self, name: &str) -> Result<LockInspection, Failure> {
        let command = Command::Inspect { name: name.to_owned() };
        let inspected = self.send(command, Duration::ZERO, |response| match response {
            Response::Inspected(inspected) => Some(inspected),
            _ => None,
        });
        inspected.wait()
    }

    /// Frees such a lock, whatever its holder. Returns whether it was held.
    pub fn force_unlock(&self, name: &str) -> Result<bool, Failure> {
        let command = Command::ForceUnlock { name: name.to_owned() };
        let freed = self.send(command, Duration::ZERO, |response| match response {
            Response::Freed { was_held } => Some(was_held),
            _ => None,
        });
        freed.wait()
    }
}

fn find_program(name: &str) -> PathBuf {
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut places = env::split_paths(&folders).map(|folder| folder.join(name));
    let found = places.find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing: `make interop` installs it"))
}
