//! A private `ZooKeeper`: one server, which stands alone or is a member of an ensemble.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bed_state::{BedState, create_private_folder, write_private};
use crate::ensemble::EnsembleMember;
use crate::error::{Error, Result};
use crate::ports;
use crate::probe::{Probe, four_letter_word};
use crate::process::{Process, ProcessSpec, start_on_free_port};
use crate::shim::{Dial, Shim};
use crate::zookeeper_wire::end_session;

const ALONE_CLASS: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";
const MEMBER_CLASS: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// The packages, as Debian calls them. Neither brings a service.
const JAVA_PACKAGE: &str = "default-jre-headless";
const JAR_PACKAGE: &str = "libzookeeper-java";

/// How a [`ZooKeeper`] differs from the usual one. Whatever it is told is on disk before it is
/// acknowledged, so a restart loses nothing.
#[derive(Clone, Debug)]
pub struct ZooKeeperOptions {
    /// The server's unit of time: an expired session is noticed at the next tick.
    pub tick_time_ms: u32,
    /// A client that asks for a shorter session is given this.
    pub min_session_timeout_ms: u32,
    /// A client that asks for a longer session is given this.
    pub max_session_timeout_ms: u32,
    /// How often empty container nodes and expired TTL nodes are looked for.
    pub container_check_ms: u32,
    /// Has a clock that [`ZooKeeper::jump_clock`] can set.
    pub clock: bool,
    /// Has a disk that [`ZooKeeper::fill_disk`] can fill.
    pub disk: bool,
    /// More lines of `zoo.cfg`; later lines win over earlier ones.
    pub extra: Vec<String>,
}

impl Default for ZooKeeperOptions {
    /// Ticks of 200 ms and sessions from 400 ms to a minute, so that a test need not wait long for
    /// a session to expire.
    fn default() -> Self {
        Self {
            tick_time_ms: 200,
            min_session_timeout_ms: 400,
            max_session_timeout_ms: 60_000,
            container_check_ms: 60_000,
            clock: false,
            disk: false,
            extra: vec![],
        }
    }
}

/// A running `ZooKeeper` server. Derefs to its [`Process`].
#[derive(Debug)]
pub struct ZooKeeper {
    process: Process,
    address: SocketAddr,
    connect_string: String,
    clock: Option<Shim>,
    disk: Option<Shim>,
    data: PathBuf,
}

/// What differs between two virtual machines.
struct JavaArgs<'a> {
    options: &'a ZooKeeperOptions,
    temp: &'a Path,
    main_class: &'a str,
    config: &'a Path,
}

/// What is installed.
struct Installation {
    java: PathBuf,
    class_path: OsString,
}

/// How a server is started.
pub(crate) struct ZooKeeperPlan<'a> {
    pub(crate) bed: &'a Arc<BedState>,
    pub(crate) options: ZooKeeperOptions,
    installed: Installation,
}

/// The place of a server in an ensemble.
pub(crate) struct Membership {
    /// From 1 on.
    pub(crate) number: usize,
    /// The lines of `zoo.cfg` that name the members.
    pub(crate) lines: String,
}

impl<'a> ZooKeeperPlan<'a> {
    pub(crate) fn new(bed: &'a Arc<BedState>, options: ZooKeeperOptions) -> Result<Self> {
        Ok(Self { bed, options, installed: Installation::find(bed)? })
    }

    /// Starts one that clients reach at that address. A member is ready once a majority runs.
    pub(crate) fn start(
        &self,
        address: SocketAddr,
        membership: Option<&Membership>,
    ) -> Result<ZooKeeper> {
        let Self { bed, options, installed } = self;
        let name = bed.unique_name("zookeeper");
        let data = bed.path(&name);
        create_private_folder(&data)?;
        if let Some(membership) = membership {
            write_private(&data.join("myid"), &membership.number.to_string())?;
        }
        let config = bed.path(&format!("{name}.cfg"));
        let text = format!(
            "dataDir={}\nclientPortAddress={}\nclientPort={}\n{}{}",
            data.display(),
            address.ip(),
            address.port(),
            membership.map_or("", |membership| &membership.lines),
            settings(options),
        );
        write_private(&config, &text)?;
        let shim = |dial| Shim::start(bed, &name, dial);
        let clock = options.clock.then(|| shim(Dial::Clock)).transpose()?;
        let disk = options.disk.then(|| shim(Dial::FullDisk)).transpose()?;
        let main_class = if membership.is_some() { MEMBER_CLASS } else { ALONE_CLASS };
        let java = JavaArgs { options, temp: &bed.temp_folder(), main_class, config: &config };
        let process = Process::start(
            bed,
            ProcessSpec {
                name,
                program: installed.java.clone(),
                args: installed.args(&java),
                env: Shim::env(clock.iter().chain(&disk)),
                probe: Probe::ZooKeeper { address },
            },
        )?;
        Ok(ZooKeeper { process, address, connect_string: address.to_string(), clock, disk, data })
    }
}

impl ZooKeeper {
    pub(crate) fn start(bed: &Arc<BedState>, options: ZooKeeperOptions) -> Result<Self> {
        let plan = ZooKeeperPlan::new(bed, options)?;
        start_on_free_port(|| plan.start(ports::free_address()?, None))
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// `127.0.0.1:port`, as clients want it.
    #[must_use]
    pub fn connect_string(&self) -> &str {
        &self.connect_string
    }

    /// Sets the server's wall clock: this many milliseconds ahead of the true time, or behind it
    /// if negative.
    ///
    /// # Errors
    /// If the options did not ask for such a clock.
    pub fn jump_clock(&self, offset_ms: i64) -> Result<()> {
        match &self.clock {
            Some(clock) => clock.set(offset_ms),
            None => Err(self.failed("was started without `clock: true`".into())),
        }
    }

    /// Fills the server's disk: no file gets another block.
    ///
    /// # Errors
    /// If the options did not ask for such a disk.
    pub fn fill_disk(&self) -> Result<()> {
        self.disk()?.set(1)
    }

    /// Makes space on the disk, removes empty logs and starts the server again, as an operator has
    /// to. It does not start with a log that it could not begin (ZOOKEEPER-1621).
    ///
    /// # Errors
    /// If the options did not ask for such a disk, or it does not become ready.
    pub fn make_space(&self) -> Result<()> {
        self.disk()?.set(0)?;
        self.kill()?;
        let logs = fs::read_dir(self.data.join("version-2")).map_err(Error::io("read a folder"))?;
        for log in logs.flatten() {
            let is_log = log.file_name().to_string_lossy().starts_with("log.");
            if is_log && log.metadata().is_ok_and(|log| log.len() == 0) {
                fs::remove_file(log.path()).map_err(Error::io("remove an empty log"))?;
            }
        }
        self.restart()
    }

    /// How many of its writes have failed because its disk was full.
    ///
    /// # Errors
    /// If the options did not ask for such a disk.
    pub fn writes_without_space(&self) -> Result<i64> {
        self.disk()?.count()
    }

    fn disk(&self) -> Result<&Shim> {
        self.disk.as_ref().ok_or_else(|| self.failed("was started without `disk: true`".into()))
    }

    /// The answer to one of the four-letter words `ruok`, `srvr`, `mntr` and `cons`.
    ///
    /// # Errors
    /// If there is no answer within a second.
    pub fn four_letter_word(&self, word: &str) -> Result<String> {
        let answer = four_letter_word(self.address, word).map_err(std::io::Error::other);
        answer.map_err(Error::io(format!("ask {} for {word}", self.name())))
    }

    /// Ends the session of that id from outside: its ephemeral nodes go, and its client learns of
    /// it at its next request.
    ///
    /// # Errors
    /// If there is no such session, or no answer within five seconds.
    pub fn end_session(&self, session: i64) -> Result<()> {
        let ended = end_session(self.address, session);
        ended.map_err(Error::io(format!("end session {session:#x} of {}", self.name())))
    }
}

impl Deref for ZooKeeper {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl EnsembleMember for ZooKeeper {
    fn leads(&self) -> bool {
        self.four_letter_word("srvr").is_ok_and(|says| says.contains("Mode: leader"))
    }

    fn follows(&self) -> bool {
        self.four_letter_word("srvr").is_ok_and(|says| says.contains("Mode: follower"))
    }

    fn is_apart(&self) -> bool {
        let says = self.four_letter_word("srvr");
        says.is_ok_and(|says| says.contains("not currently serving requests"))
    }
}

impl Installation {
    fn find(bed: &BedState) -> Result<Self> {
        let java = bed.programs.need("java", JAVA_PACKAGE)?;
        // The manifest of Debian's jar names the other jars it needs.
        let mut class_path = bed.programs.need_jar("zookeeper.jar", JAR_PACKAGE)?.into_os_string();
        // Without it the server works and logs nothing.
        if let Some(logger) = bed.programs.find_jar("slf4j-simple.jar") {
            class_path.push(":");
            class_path.push(logger);
        }
        Ok(Self { java, class_path })
    }

    /// A small virtual machine that is quick to start and leaves no file outside of the bed.
    fn args(&self, java: &JavaArgs<'_>) -> Vec<OsString> {
        let mut args: Vec<OsString> = [
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.net.preferIPv4Stack=true",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        ]
        .map(OsString::from)
        .to_vec();
        let mut temp_option = OsString::from("-Djava.io.tmpdir=");
        temp_option.push(java.temp);
        args.push(temp_option);
        let check_ms = java.options.container_check_ms;
        args.push(format!("-Dznode.container.checkIntervalMs={check_ms}").into());
        args.extend(["-cp".into(), self.class_path.clone(), java.main_class.into()]);
        args.push(java.config.into());
        args
    }
}

/// What a restart and another port leave as it is. Later lines win over earlier ones.
fn settings(options: &ZooKeeperOptions) -> String {
    let mut lines = vec![
        format!("tickTime={}", options.tick_time_ms),
        format!("minSessionTimeout={}", options.min_session_timeout_ms),
        format!("maxSessionTimeout={}", options.max_session_timeout_ms),
        // No limit on the connections of one address: all clients have the same.
        "maxClientCnxns=0".into(),
        "4lw.commands.whitelist=ruok,srvr,mntr,cons".into(),
        "admin.enableServer=false".into(),
        // Nodes that live for a time, and nodes that go with their last child.
        "extendedTypesEnabled=true".into(),
    ];
    lines.extend(options.extra.iter().cloned());
    lines.join("\n") + "\n"
}
