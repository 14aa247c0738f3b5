//! A JVM that answers each line of input with one of output: for the bench, where it
//! measures, and for what a contender has no command for.

use std::io::{BufRead, BufReader, Write};
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use testbed::Program;

use crate::peer::{Peer, SMALL};
use crate::servers::Servers;

/// How long an answer may take beyond what was asked for: a JVM takes its time to start.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// A JVM that is killed when this value is dropped.
pub struct Jvm {
    program: Program,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Jvm {
    /// Starts that class of `conformance/interop` with these arguments, and the real Redisson 4. It
    /// runs as a JVM usually does, with 512 MiB.
    pub fn start(servers: &Servers, class: &str, args: &[&str]) -> Self {
        let name = format!("jvm-{class}");
        let class_and_args = [&[class], args].concat();
        Self::of(Peer::Redisson4.program(servers, &name, &["-Xmx512m"], &class_and_args))
    }

    /// Starts a small JVM with the peer's library, for what is not timed.
    pub fn start_small(servers: &Servers, peer: Peer, class: &str, args: &[&str]) -> Self {
        let name = format!("jvm-{}", peer.name());
        let class_and_args = [&[class], args].concat();
        Self::of(peer.program(servers, &name, &SMALL, &class_and_args))
    }

    fn of(program: Program) -> Self {
        let (stdin, stdout) = program.pipes().expect("pipes that were not taken");
        let (said, lines) = channel();
        thread::spawn(move || {
            let spoken = BufReader::new(stdout).lines().map_while(Result::ok);
            // The receiver is dropped with the value.
            spoken.take_while(|line| said.send(line.clone()).is_ok()).for_each(drop);
        });
        Self { program, stdin, lines }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Tells it a line and waits for its answer, so long and as long as an answer takes; what its
    /// log says if there is none.
    pub fn ask(&mut self, line: &str, length: Duration) -> Result<String, String> {
        let said = writeln!(self.stdin, "{line}");
        let answer = said.ok().and_then(|()| self.lines.recv_timeout(length + ANSWER_TIMEOUT).ok());
        answer.ok_or_else(|| format!("no answer to {line:?}: {}", self.program.log_tail(20)))
    }
}
