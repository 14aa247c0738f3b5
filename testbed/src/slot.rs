//! The place of one running child, shared by its handle and the bed.

use std::fs;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::{Error, Result};

/// Where a child is while it runs. Signals are sent only with the lock held and only to a child
/// that has not been reaped: its process id cannot belong to another process.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    child: Option<Child>,
    pid: u32,
}

/// What a look at a child shows.
pub(crate) enum Life {
    /// It runs; it may be frozen.
    Running,
    /// It has ended by itself.
    Ended(ExitStatus),
    /// It was killed through its slot, or never started.
    Gone,
}

impl Slot {
    /// The process id of the last child.
    pub(crate) fn pid(&self) -> u32 {
        self.lock().pid
    }

    /// Puts a new child in, made with the lock held.
    pub(crate) fn fill(&self, start: impl FnOnce() -> Result<Child>) -> Result<()> {
        let mut state = self.lock();
        let child = start()?;
        *state = State { pid: child.id(), child: Some(child) };
        Ok(())
    }

    /// Takes the child's pipes, if it has any and they were not taken before.
    pub(crate) fn pipes(&self) -> Option<(ChildStdin, ChildStdout)> {
        let mut state = self.lock();
        let child = state.child.as_mut()?;
        child.stdin.take().zip(child.stdout.take())
    }

    /// Looks after the child without waiting.
    pub(crate) fn look(&self) -> Result<Life> {
        self.lock().look()
    }

    /// Signals the child's process group; false if it is not running.
    pub(crate) fn signal(&self, signal: Signal) -> Result<bool> {
        let mut state = self.lock();
        if !matches!(state.look()?, Life::Running) {
            return Ok(false);
        }
        state.signal_group(signal)?;
        Ok(true)
    }

    /// Kills and reaps the child, if there is one.
    pub(crate) fn kill(&self) -> Result<()> {
        let mut state = self.lock();
        if matches!(state.look()?, Life::Running) {
            state.signal_group(Signal::SIGKILL)?;
        }
        match state.child.take() {
            Some(mut child) => child.wait().map(drop).map_err(Error::io("reap a process")),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn look(&mut self) -> Result<Life> {
        let Some(child) = &mut self.child else { return Ok(Life::Gone) };
        let status = child.try_wait().map_err(Error::io("look after a process"))?;
        Ok(status.map_or(Life::Running, Life::Ended))
    }

    fn signal_group(&self, signal: Signal) -> Result<()> {
        let group = Pid::from_raw(i32::try_from(self.pid).unwrap_or(i32::MAX));
        match killpg(group, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(Error::Io {
                action: format!("send {signal} to process {}", self.pid),
                cause: errno.into(),
            }),
        }
    }
}

/// The state letters of all threads of a process, as in `/proc/PID/stat`.
pub(crate) fn thread_states(pid: u32) -> Vec<char> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
            // The name in parentheses may contain anything, also parentheses.
            stat.rsplit_once(')')?.1.trim_start().chars().next()
        })
        .collect()
}
