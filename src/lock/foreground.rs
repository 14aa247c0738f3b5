//! Hands the terminal to the command's process group.
//!
//! Only the foreground group of a terminal may read from it, and Ctrl-C goes to that group.

use std::io;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal on stdin while another group is in its foreground. Dropping this takes it back.
pub(super) struct ForegroundGuard {
    to: Pid,
}

impl ForegroundGuard {
    /// Puts that group into the foreground; `None` if stdin is no terminal, or another group's.
    pub(super) fn hand_to(group: Pid) -> Option<Self> {
        if tcgetpgrp(io::stdin()).ok()? != getpgrp() {
            return None;
        }
        tcsetpgrp(io::stdin(), group).ok()?;
        Some(Self { to: group })
    }

    /// Whether the group's leader was stopped from the terminal (Ctrl-Z).
    pub(super) fn is_stopped(&self) -> bool {
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        let from_terminal = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
        matches!(
            waitid(Id::Pid(self.to), flags),
            Ok(WaitStatus::Stopped(_, signal)) if from_terminal.contains(&signal)
        )
    }
}

impl Drop for ForegroundGuard {
    fn drop(&mut self) {
        // A process that takes a terminal from the background gets this signal, which would stop
        // it.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let taken = stop.thread_block().and_then(|()| {
            let taken = tcsetpgrp(io::stdin(), getpgrp());
            stop.thread_unblock().and(taken)
        });
        if let Err(error) = taken {
            tracing::debug!(%error, "cannot take the terminal back");
        }
    }
}
