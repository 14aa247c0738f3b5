//! A link on which single packets are lost and change their order.
//!
//! A [`Proxy`](crate::Proxy) sees bytes, which TCP has put in order. Here a process sees the
//! packets themselves. It is in a network namespace of its own and has a TUN device: each
//! connection leaves the kernel by it and enters again. TCP sends again what is lost. The network
//! of the machine stays as it is, and the namespace ends with its process.
//!
//! Unix sockets lead into the namespace and out of it: client, [`PacketLink`], Unix socket, TCP
//! over the device, Unix socket, `PacketLink`, server.
//!
//! The process runs a program of the caller, which calls [`packet_link_main`] first of all. The
//! kernel must have TUN devices, and this user must be allowed to open `/dev/net/tun` and to make
//! namespaces: [`PacketLink::check`].
//!
//! Modules: `namespace` (the process inside), `device` (its packets), `relay` (between sockets).

mod device;
mod namespace;
mod relay;

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Add;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::SockAddr;

pub use self::namespace::packet_link_main;
use self::relay::{Relay, listen};
use crate::bed_state::BedState;
use crate::error::{Error, Result};
use crate::program::Program;
use crate::programs::Programs;

/// The first argument of the program that is started in the namespace.
const COMMAND: &str = "packet-link";
/// The second one, if it only says whether there can be such a link.
const CHECK: &str = "check";
/// What it says when connections can come.
const READY: &str = "ready";
/// How a namespace is made.
const UNSHARE: [&str; 4] = ["--user", "--map-root-user", "--net", "--"];
/// Lines of the log in an error.
const LOG_LINES: usize = 5;

/// What happens to the packets of a link, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFaults {
    /// Packets in a hundred that are lost.
    pub loss_percent: u8,
    /// Packets in a hundred that are held back, so that later ones overtake them.
    pub reorder_percent: u8,
    /// How long one of these is held back at most.
    pub max_delay: Duration,
}

/// What happened to the packets of a link so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Packets that were passed on.
    pub passed: u64,
    /// Packets that were lost.
    pub lost: u64,
    /// Packets that were passed on after later ones.
    pub overtaken: u64,
    /// Segments that the kernel sent again (`RetransSegs`).
    pub retransmitted: u64,
    /// Segments that came to the kernel before an earlier one of their connection (`TCPOFOQueue`).
    pub out_of_order: u64,
}

impl Add for PacketCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            lost: self.lost + other.lost,
            overtaken: self.overtaken + other.overtaken,
            retransmitted: self.retransmitted + other.retransmitted,
            out_of_order: self.out_of_order + other.out_of_order,
        }
    }
}

/// A way to one server on which packets can be lost; none is until it is asked for. Dropping it
/// closes everything.
pub struct PacketLink {
    address: SocketAddr,
    /// Dropped first: the connections on the link end with it.
    process: Program,
    control: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    _relays: [Relay; 2],
}

impl PacketLink {
    /// Whether there can be such a link on this machine, for this user.
    ///
    /// # Errors
    /// If not: what the system refuses.
    pub fn check(program: &Path) -> Result<()> {
        let mut command = Command::new(unshare()?);
        command.args(UNSHARE).arg(program).args([COMMAND, CHECK]).stdin(Stdio::null());
        let output = command.output().map_err(Error::io("start unshare"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let cause = io::Error::other(said.lines().last().unwrap_or_default());
        Err(Error::io("lose packets")(cause))
    }

    pub(crate) fn start(
        bed: &Arc<BedState>,
        program: &Path,
        server: SocketAddr,
        seed: u64,
    ) -> Result<Self> {
        let name = bed.unique_name("packets");
        let [entrance, exit] = ["in", "out"].map(|end| bed.path(&format!("{name}.{end}")));
        let unix = |path: &Path| SockAddr::unix(path).map_err(Error::io("name a socket"));
        let (inwards, outwards) = (unix(&entrance)?, unix(&exit)?);
        let relay = |at: SockAddr, to| listen(&at).and_then(|listener| Relay::start(listener, to));
        let out = relay(outwards, server.into()).map_err(Error::io("listen for a namespace"))?;

        let seed = seed.to_string();
        let [program, entrance, exit] =
            [program, &entrance, &exit].map(|path| path.to_string_lossy().into_owned());
        let arguments = [&program, COMMAND, &entrance, &exit, &seed];
        let arguments: Vec<&str> = UNSHARE.into_iter().chain(arguments).collect();
        let process = Program::start(bed, COMMAND, &unshare()?, &arguments, false)?;
        let (requests, answers) = process.pipes().ok_or(Error::Closed)?;
        let mut control = (requests, BufReader::new(answers));
        let said = read_line(&mut control.1);
        if said.as_deref() != Some(READY) {
            let tail = process.log_tail(LOG_LINES);
            let reason = "cannot lose packets on this machine".into();
            return Err(Error::Failed { name: process.name().to_owned(), reason, tail });
        }
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let into = relay(any_port.into(), inwards).map_err(Error::io("listen on 127.0.0.1"))?;
        let address = into.address().as_socket().ok_or(Error::Closed)?;
        Ok(Self { address, process, control: Mutex::new(control), _relays: [into, out] })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The process that has the namespace.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Has this happen to packets from now on; what was held back before still comes.
    ///
    /// # Errors
    /// If the process in the namespace has ended.
    pub fn set_faults(&self, faults: PacketFaults) -> Result<()> {
        self.ask(Some(faults)).map(drop)
    }

    /// Passes every packet on at once from now on.
    ///
    /// # Errors
    /// If the process in the namespace has ended.
    pub fn heal(&self) -> Result<()> {
        self.set_faults(PacketFaults::default())
    }

    /// What happened so far.
    ///
    /// # Errors
    /// If the process in the namespace has ended.
    pub fn counts(&self) -> Result<PacketCounts> {
        self.ask(None)
    }

    /// Sends one line and reads the counts that answer it.
    fn ask(&self, faults: Option<PacketFaults>) -> Result<PacketCounts> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let (requests, answers) = &mut *control;
        let line = faults.map_or(String::new(), namespace::request);
        let sent = writeln!(requests, "{line}");
        let answer = sent.ok().and_then(|()| namespace::parse_counts(&read_line(answers)?));
        answer.ok_or_else(|| {
            let (name, tail) = (self.process.name().to_owned(), self.process.log_tail(LOG_LINES));
            Error::Failed { name, reason: "has ended".into(), tail }
        })
    }
}

fn unshare() -> Result<PathBuf> {
    Programs::of_the_system().need("unshare", "util-linux")
}

fn read_line(from: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    from.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    Some(line.trim_end().to_owned())
}

impl fmt::Debug for PacketLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketLink").field("address", &self.address).finish_non_exhaustive()
    }
}
