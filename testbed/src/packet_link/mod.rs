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
//! user namespaces: [`PacketLink::check`].
//!
//! Modules: `namespace` (the process inside), `device` (its packets), `relay` (between sockets).

mod device;
mod namespace;
mod relay;

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Add;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockAddr;

pub use self::namespace::packet_link_main;
use self::relay::{Relay, listen};
use crate::bed_state::BedState;
use crate::error::{Error, Result};
use crate::program::Program;

/// The first argument of the program that is started in the namespace.
const COMMAND: &str = "packet-link";
/// The second one, if it only says whether there can be such a link.
const CHECK: &str = "check";
/// What it says when connections can come.
const READY: &str = "ready";
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

/// A way to one server on which packets can be lost; it begins without faults. Dropping it closes
/// everything.
pub struct PacketLink {
    address: SocketAddr,
    /// Dropped first: the connections on the link end with it.
    process: Program,
    control: Mutex<Control>,
    _relays: [Relay; 2],
    _socket_files: SocketFiles,
}

/// The pipes to the process.
struct Control {
    requests: ChildStdin,
    answers: ChildStdout,
    /// How long an answer takes at most.
    limit: Duration,
}

/// The Unix sockets of a link, which are removed with it.
struct SocketFiles([PathBuf; 2]);

impl Drop for SocketFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            // A link that failed to start lacks one of them.
            let _ = fs::remove_file(path);
        }
    }
}

impl PacketLink {
    /// Whether there can be such a link on this machine, for this user.
    ///
    /// # Errors
    /// If not: what the system refuses.
    pub fn check(program: &Path) -> Result<()> {
        let mut command = Command::new(program);
        command.args([COMMAND, CHECK]).stdin(Stdio::null());
        let action = format!("start {}", program.display());
        let output = command.output().map_err(Error::io(action))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = said.lines().last().map(str::to_owned);
        let cause = reason.unwrap_or_else(|| format!("{} {}", program.display(), output.status));
        Err(Error::io("lose packets")(io::Error::other(cause)))
    }

    pub(crate) fn start(
        bed: &Arc<BedState>,
        program: &Path,
        server: SocketAddr,
        seed: u64,
    ) -> Result<Self> {
        let name = bed.unique_name("packets");
        let files = SocketFiles(["in", "out"].map(|end| bed.path(&format!("{name}.{end}"))));
        let unix = |path: &Path| SockAddr::unix(path).map_err(Error::io("name a socket"));
        let [entrance, exit] = &files.0;
        let (inwards, outwards) = (unix(entrance)?, unix(exit)?);
        let relay = |at: SockAddr, to| listen(&at).and_then(|listener| Relay::start(listener, to));
        let out = relay(outwards, server.into()).map_err(Error::io("listen for a namespace"))?;

        let seed = seed.to_string();
        let [entrance, exit] = [entrance, exit].map(|path| path.to_string_lossy());
        let arguments = [COMMAND, &entrance, &exit, &seed];
        let process = Program::start(bed, COMMAND, program, &arguments, false)?;
        let (requests, answers) = process.pipes().ok_or(Error::Closed)?;
        let mut control = Control { requests, answers, limit: bed.ready_within };
        let said = control.read_line().map_err(|error| explain_failure(&process, &error))?;
        if said != READY {
            let error = io::Error::other(format!("it says {said:?}"));
            return Err(explain_failure(&process, &error));
        }
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let into = relay(any_port.into(), inwards).map_err(Error::io("listen on 127.0.0.1"))?;
        let address = into.address().map_err(Error::io("listen on 127.0.0.1"))?;
        let address = address.as_socket().ok_or(Error::Closed)?;
        let control = Mutex::new(control);
        Ok(Self { address, process, control, _relays: [into, out], _socket_files: files })
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

    /// Sets what happens to packets from now on; those already held back are still passed on. The
    /// choice of packets begins again with the seed.
    ///
    /// # Errors
    /// If the process in the namespace has ended or does not answer in time; it is then killed.
    pub fn set_faults(&self, faults: PacketFaults) -> Result<()> {
        self.send_request(Some(faults)).map(drop)
    }

    /// Passes every packet on at once from now on.
    ///
    /// # Errors
    /// If the process in the namespace has ended or does not answer in time; it is then killed.
    pub fn heal(&self) -> Result<()> {
        self.set_faults(PacketFaults::default())
    }

    /// What happened so far.
    ///
    /// # Errors
    /// If the process in the namespace has ended or does not answer in time; it is then killed.
    pub fn counts(&self) -> Result<PacketCounts> {
        self.send_request(None)
    }

    /// Sends one line and reads the counts that answer it.
    fn send_request(&self, faults: Option<PacketFaults>) -> Result<PacketCounts> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let line = faults.map_or(String::new(), namespace::request);
        let sent = writeln!(control.requests, "{line}");
        let answer = sent.and_then(|()| control.read_line());
        let counts = answer.and_then(|line| {
            namespace::parse_counts(&line)
                .ok_or_else(|| io::Error::other(format!("it says {line:?}")))
        });
        counts.map_err(|error| {
            // A late answer would be taken for that of the next request.
            let _ = self.process.kill();
            explain_failure(&self.process, &error)
        })
    }
}

impl Control {
    /// Reads the line that answers the last request; the process writes no other.
    fn read_line(&mut self) -> io::Result<String> {
        let deadline = Instant::now() + self.limit;
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            if is_readable(&self.answers, Some(deadline))? {
                let mut buffer = [0; 256];
                let length = self.answers.read(&mut buffer)?;
                if length == 0 {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended"));
                }
                line.extend_from_slice(&buffer[..length]);
            } else if Instant::now() >= deadline {
                let what = format!("no answer within {:?}", self.limit);
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

fn explain_failure(process: &Program, error: &io::Error) -> Error {
    let (name, tail) = (process.name().to_owned(), process.log_tail(LOG_LINES));
    Error::Failed { name, reason: format!("cannot lose packets: {error}"), tail }
}

/// Waits for something to read, until then at most.
fn is_readable(source: &impl AsFd, until: Option<Instant>) -> io::Result<bool> {
    // Whole milliseconds, and not before.
    let left = |until: Instant| until.saturating_duration_since(Instant::now());
    let wait = until.map(|until| left(until) + Duration::from_millis(1));
    let wait = wait.and_then(|wait| PollTimeout::try_from(wait).ok()).unwrap_or(PollTimeout::NONE);
    match poll(&mut [PollFd::new(source.as_fd(), PollFlags::POLLIN)], wait) {
        Ok(count) => Ok(count > 0),
        // A signal ends the wait early.
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl fmt::Debug for PacketLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketLink").field("address", &self.address).finish_non_exhaustive()
    }
}
