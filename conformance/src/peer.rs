//! Contenders of the JVM, with the locks of Redisson and Curator, and what only locks that these
//! share with this library can be asked. `conformance/interop` has their program.

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
}

impl Peer {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redisson4 => "redisson-4",
            Self::Redisson3 => "redisson-3",
            Self::Curator => "curator",
        }
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
        servers.bed().program(name, &java(), &args).expect("a JVM starts")
    }
}

impl Contender {
    /// Starts a contender of the JVM. Redisson renews its locks for so long at a time, whatever
    /// is asked for.
    pub fn start_peer(servers: &Servers, peer: Peer, setup: &Setup, renewed: Duration) -> Self {
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

fn java() -> PathBuf {
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut places = env::split_paths(&folders).map(|folder| folder.join("java"));
    places.find(|path| path.is_file()).expect("a JVM is installed: `make interop` does that")
}
