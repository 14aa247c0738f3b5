//! The terminal, lent to the command: only the foreground group of a terminal may read from it, and
//! Ctrl-C goes to that group.

use std::io;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal on stdin while another group has it. Dropping this takes it back.
pub(super) struct Lent {
    to: Pid,
}

impl Lent {
    /// Lends the terminal to that group; `None` if stdin is none, or another group's.
    pub(super) fn to(group: Pid) -> Option<Self> {
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

impl Drop for Lent {
    fn drop(&mut self) {
        // Whoever takes a terminal from the background is stopped by this signal, unless blocked.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let taken = stop.thread_block().and_then(|()| {
            let taken = tcsetpgrp(io::stdin(), getpgrp());
            stop.thread_unblock().and(taken)
        });
        if let Err(error) = taken {
            tracing::debug!(%error, "the terminal could not be taken back");
        }
    }
}
