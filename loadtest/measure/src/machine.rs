//! Where figures came from: the machine, and the versions of what ran on it.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ring::digest::{Context, SHA256};
use serde::Serialize;
use tokio::process::Command;

use crate::error::{Error, Result};

/// The file that this process runs, also if another one has been put into its place since.
const OWN_EXECUTABLE: &str = "/proc/self/exe";
/// Bytes of an executable that are read at once.
const CHUNK_BYTES: usize = 1 << 16;
/// How long a service may take to say what version it is.
const VERSION_DEADLINE: Duration = Duration::from_secs(10);
/// Digits of a digest that are shown to people.
const SHOWN_DIGITS: usize = 12;

/// The machine that everything ran on.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Processors that this program may use.
    pub cpus: usize,
    /// Their name, if the system reports it.
    pub cpu: String,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the operating system.
    pub system: String,
}

impl Machine {
    /// Reads what Linux reports; what it does not report is empty or 0.
    pub fn read() -> Self {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let memory_kib = value(&file("/proc/meminfo"), "MemTotal", ':')
            .and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
        Self {
            cpus: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            cpu: value(&file("/proc/cpuinfo"), "model name", ':').unwrap_or_default(),
            memory_mib: memory_kib.unwrap_or(0) / 1024,
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: value(&file("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or_default(),
        }
    }
}

/// The value of the first line that begins with `key` and `separator`, without quotes.
fn value(text: &str, key: &str, separator: char) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(separator))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim().trim_matches('"').to_owned())
}

/// Versions of everything that took part.
#[derive(Debug, Clone, Serialize)]
pub struct Versions {
    /// This program.
    pub loadtest: &'static str,
    /// The executables.
    pub builds: Builds,
    /// What cargo optimised them for.
    pub profiles: Profiles,
    /// `SELECT VERSION()`.
    pub database: String,
    /// Redis.
    pub redis: String,
    /// `HAProxy`.
    pub haproxy: String,
    /// `ZooKeeper`, if a cell needed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zookeeper: Option<String>,
    /// etcd, if a cell needed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd: Option<String>,
    /// NATS, if a cell needed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nats: Option<String>,
}

/// Which executables ran: the SHA-256 of each file. Two builds of one version are two programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Builds {
    /// This one.
    pub loadtest: String,
    /// The service.
    pub seckill: String,
}

impl Builds {
    /// Reads the digests of this process and of that service. A script is digested itself, not what
    /// it starts.
    pub fn read(seckill: &Path) -> Result<Self> {
        Ok(Self { loadtest: digest(Path::new(OWN_EXECUTABLE))?, seckill: digest(seckill)? })
    }
}

/// The profiles of cargo that the executables were built with. `demo` is not the `release` that
/// figures of speed are given for.
#[derive(Debug, Clone, Serialize)]
pub struct Profiles {
    /// The profile of this program.
    pub loadtest: &'static str,
    /// The profile of the service; `unknown` if it does not say.
    pub seckill: String,
}

impl Profiles {
    /// Reads the profile of this process, and asks the service for its own.
    pub async fn read(seckill: &Path) -> Self {
        let said = service_version(seckill).await.unwrap_or_default();
        Self { loadtest: env!("BUILD_PROFILE"), seckill: profile(&said).to_owned() }
    }
}

/// The profile in what `--version` says: `seckill 0.1.0 (release)`.
fn profile(version: &str) -> &str {
    let inside = version.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    inside.map_or("unknown", |(profile, _)| profile)
}

impl Versions {
    /// Profile and build of both executables, in short form.
    pub fn builds(&self) -> [String; 2] {
        let Self { builds, profiles, .. } = self;
        [(&builds.loadtest, profiles.loadtest), (&builds.seckill, &profiles.seckill)]
            .map(|(build, of)| format!("{of} build {}", build.get(..SHOWN_DIGITS).unwrap_or(build)))
    }
}

/// What `seckill --version` says.
pub async fn service_version(program: &Path) -> Result<String> {
    let shown = program.display();
    let asked =
        Command::new(program).arg("--version").stdin(Stdio::null()).kill_on_drop(true).output();
    let asked = tokio::time::timeout(VERSION_DEADLINE, asked).await;
    let told = asked.map_err(|_| Error::Setup(format!("{shown} does not report its version")))?;
    let told = told.map_err(|error| Error::Usage(format!("{shown} cannot be run: {error}")))?;
    Ok(String::from_utf8_lossy(&told.stdout).into_owned())
}

/// The SHA-256 of a file, in hexadecimal digits.
fn digest(path: &Path) -> Result<String> {
    let wrong = |error| Error::Setup(format!("{} cannot be read: {error}", path.display()));
    let mut file = File::open(path).map_err(wrong)?;
    let (mut context, mut chunk) = (Context::new(&SHA256), vec![0; CHUNK_BYTES]);
    loop {
        match file.read(&mut chunk).map_err(wrong)? {
            0 => break,
            length => context.update(&chunk[..length]),
        }
    }
    Ok(context.finish().as_ref().iter().fold(String::new(), |mut text, byte| {
        // Writing into a string never fails.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// What a running server says of its version. The very program that runs is asked, wherever it was
/// found; `name` is the name it is called by, because one executable may be several servers.
pub async fn version_of(pid: u32, name: &str, flag: &str) -> String {
    let output = Command::new(format!("/proc/{pid}/exe"))
        .arg0(name)
        .arg(flag)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    first_version(&text.unwrap_or_default()).unwrap_or_else(|| "unknown".to_owned())
}

/// The first word that looks like a version: digits, a dot, and what follows up to the next space.
fn first_version(text: &str) -> Option<String> {
    text.split_whitespace()
        .map(|word| word.trim_start_matches('v').trim_start_matches('='))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
        .map(str::to_owned)
}

/// The number in what a `ZooKeeper` answers to `srvr`: `Zookeeper version: 3.8.0-...`.
pub fn zookeeper_version(said: &str) -> String {
    let version = first_version(said).unwrap_or_default();
    version.split('-').next().unwrap_or_default().to_owned()
}

/// The version in what Redis answers to `INFO server`; one that is Valkey is named.
pub fn redis_version(said: &str) -> String {
    let member = |name: &str| said.lines().find_map(|line| line.trim_end().strip_prefix(name));
    match (member("valkey_version:"), member("redis_version:")) {
        (Some(version), _) => format!("{version} (Valkey)"),
        (None, version) => version.unwrap_or("unknown").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_another_one_once_a_byte_of_it_is_and_its_name_does_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let builds = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).expect("written");
            Builds::read(&path).expect("readable")
        };
        let first = builds("seckill", b"abc");
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(first.seckill, known, "SHA-256 of abc, as FIPS 180 has it");
        assert_eq!(builds("renamed", b"abc"), first);
        let other = builds("seckill", b"abd");
        assert_ne!(other.seckill, first.seckill);
        assert_eq!(other.loadtest, first.loadtest);
        assert!(Builds::read(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn the_profile_of_a_build_is_reported_by_the_program() {
        assert_eq!(profile("seckill 0.1.0 (release)\n"), "release");
        assert_eq!(profile("seckill 0.1.0 (demo) with failpoints\n"), "demo");
        assert_eq!(profile("seckill 0.1.0\n"), "unknown");
        assert_ne!(env!("BUILD_PROFILE"), "unknown");
    }

    #[test]
    fn versions_are_found_in_what_servers_print() {
        assert_eq!(redis_version("# Server\r\nredis_version:7.0.15\r\nos:Linux\r\n"), "7.0.15");
        let valkey = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.1\r\n";
        assert_eq!(redis_version(valkey), "9.0.1 (Valkey)");
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        assert_eq!(first_version(redis).as_deref(), Some("7.0.15"));
        let haproxy = "HAProxy version 2.6.12-1+deb12u2 2025/04/01 - https://haproxy.org/\n";
        assert_eq!(first_version(haproxy).as_deref(), Some("2.6.12-1+deb12u2"));
        assert_eq!(first_version("no such option"), None);
    }

    #[tokio::test]
    async fn a_program_that_does_not_answer_does_not_block_other_tasks() {
        let mut child = Command::new("sleep").arg("5").spawn().expect("a program");
        let pid = child.id().expect("it runs");
        let patience = std::time::Duration::from_millis(100);
        let answered = tokio::time::timeout(patience, version_of(pid, "sleep", "2")).await;
        child.kill().await.expect("ended");
        assert!(answered.is_err(), "it said {answered:?}");
    }

    #[test]
    fn this_machine_has_a_processor_and_a_kernel() {
        let machine = Machine::read();
        assert!(machine.cpus > 0 && !machine.kernel.is_empty(), "{machine:?}");
    }
}
