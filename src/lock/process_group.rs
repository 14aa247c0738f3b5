//! A command in a process group of its own, so that signals reach all processes that it starts.

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

use super::foreground::ForegroundGuard;

/// How often to check whether the group is empty.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running command and those of its descendants that have not left the group.
pub(super) struct ProcessGroup {
    leader: Child,
    id: Pid,
    ended: Option<ExitStatus>,
    terminal: Option<ForegroundGuard>,
}

impl ProcessGroup {
    /// Starts the command with additional environment variables, in the foreground of the terminal
    /// if there is one.
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
        let group = Self { leader, id, ended: None, terminal: ForegroundGuard::hand_to(id) };
        if group.terminal.is_some() {
            // It may have been stopped because it read the terminal from the background.
            group.signal(Signal::SIGCONT);
        }
        Ok(group)
    }

    /// Resumes the command after Ctrl-Z: a stopped command would hold the lock and the terminal and
    /// do nothing.
    pub(super) fn resume_if_stopped(&self) {
        if self.terminal.as_ref().is_some_and(ForegroundGuard::is_stopped) {
            self.signal(Signal::SIGCONT);
        }
    }

    /// Waits for the end of the command itself; the future may be dropped and made again.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let status = self.leader.wait().await?;
        self.ended = Some(status);
        Ok(status)
    }

    /// Sends a signal to the whole group; a group that has ended is no error.
    pub(super) fn signal(&self, signal: Signal) {
        if let Err(error) = killpg(self.id, signal)
            && error != Errno::ESRCH
        {
            tracing::warn!(%error, %signal, "cannot signal the command");
        }
    }

    /// Sends SIGTERM at once and SIGKILL at `deadline` to what is left; returns when all have
    /// ended.
    pub(super) async fn end(&mut self, deadline: Instant) -> io::Result<()> {
        self.signal(Signal::SIGTERM);
        // A stopped process handles SIGTERM only once it is continued.
        self.signal(Signal::SIGCONT);
        let gone = async {
            self.ended().await?;
            while self.is_alive() {
                sleep(EXIT_POLL_INTERVAL).await;
            }
            Ok(())
        };
        if let Ok(gone) = timeout_at(deadline, gone).await {
            return gone;
        }
        self.signal(Signal::SIGKILL);
        self.ended().await.map(drop)
    }

    fn is_alive(&self) -> bool {
        killpg(self.id, None) != Err(Errno::ESRCH)
    }
}

/// The exit code that a shell gives for that status.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
