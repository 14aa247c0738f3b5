//! A command in a process group of its own, so that a signal reaches all that it has started.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout_at};

use super::terminal::Lent;

/// How often to look whether a group is empty.
const LOOK: Duration = Duration::from_millis(10);

/// A running command and its descendants, as far as these have not left the group.
pub(super) struct Group {
    leader: Child,
    id: Pid,
    ended: Option<ExitStatus>,
    terminal: Option<Lent>,
}

impl Group {
    /// Starts the command with more variables in its environment, and in the foreground of the
    /// terminal if there is one.
    pub(super) fn start(command: &[OsString], more: &[(&str, String)]) -> io::Result<Self> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command"))?;
        let leader = Command::new(program)
            .args(arguments)
            .envs(more.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .spawn()?;
        let id = leader.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| io::Error::other("the command has no process number"))?;
        let id = Pid::from_raw(id);
        let group = Self { leader, id, ended: None, terminal: Lent::to(id) };
        if group.terminal.is_some() {
            // It may have been stopped for reading too early.
            group.signal(Signal::SIGCONT);
        }
        Ok(group)
    }

    /// Lets the command go on if somebody pressed Ctrl-Z: it would hold the lock and do nothing,
    /// and nobody could use the terminal.
    pub(super) fn go_on(&self) {
        if self.terminal.as_ref().is_some_and(Lent::is_stopped) {
            self.signal(Signal::SIGCONT);
        }
    }

    /// Waits for the end of the command itself. May be dropped and called again.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let status = self.leader.wait().await?;
        self.ended = Some(status);
        Ok(status)
    }

    /// Sends a signal to all of the group. A group that has gone needs none.
    pub(super) fn signal(&self, signal: Signal) {
        if let Err(error) = killpg(self.id, signal)
            && error != Errno::ESRCH
        {
            tracing::warn!(%error, %signal, "the command could not be signalled");
        }
    }

    /// SIGTERM at once, SIGKILL at `deadline` for whatever is left; returns when all have gone.
    pub(super) async fn end(&mut self, deadline: Instant) -> io::Result<()> {
        self.signal(Signal::SIGTERM);
        // What was stopped could not end.
        self.signal(Signal::SIGCONT);
        let gone = async {
            self.ended().await?;
            while self.is_there() {
                sleep(LOOK).await;
            }
            Ok(())
        };
        if let Ok(gone) = timeout_at(deadline, gone).await {
            return gone;
        }
        self.signal(Signal::SIGKILL);
        self.ended().await.map(drop)
    }

    fn is_there(&self) -> bool {
        killpg(self.id, None) != Err(Errno::ESRCH)
    }
}

/// The exit code that a shell gives for such an end.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
