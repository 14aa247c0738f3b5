//! A JVM that measures, for the bench: it answers each line that it is told with one of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use testbed::Program;

use crate::peer::Peer;
use crate::servers::Servers;

/// How long an answer may take beyond what was asked for: a JVM takes its time to start.
const ANSWER: Duration = Duration::from_secs(20);

/// It runs as a JVM usually does, with 512 MiB, and ends with this value.
pub struct Jvm {
    program: Program,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Jvm {
    /// Starts that class of `conformance/interop` with these arguments, and the real Redisson 4.
    pub fn start(servers: &Servers, class: &str, args: &[&str]) -> Self {
        let class_and_args = [&[class], args].concat();
        let name = format!("jvm-{class}");
        let program = Peer::Redisson4.program(servers, &name, &["-Xmx512m"], &class_and_args);
        let (stdin, stdout) = program.pipes().expect("nobody else takes them");
        let (said, lines) = channel();
        thread::spawn(move || {
            let spoken = BufReader::new(stdout).lines().map_while(Result::ok);
            // Nobody listens any more when the value is gone.
            spoken.take_while(|line| said.send(line.clone()).is_ok()).for_each(drop);
        });
        Self { program, stdin, lines }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Tells it a line and waits for its answer, so long and as long as an answer takes; what its
    /// log says if there is none.
    pub fn ask(&mut self, line: &str, length: Duration) -> Result<String, String> {
        let said = writeln!(self.stdin, "{line}");
        let answer = said.ok().and_then(|()| self.lines.recv_timeout(length + ANSWER).ok());
        answer.ok_or_else(|| format!("no answer to {line:?}: {}", self.program.log_tail(20)))
    }
}
