//! A program that is talked to: its stdin and stdout are pipes, its stderr is its log.

use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;

use crate::bed_state::BedState;
use crate::error::{Error, Result};
use crate::probe::Probe;
use crate::process::{Process, ProcessSpec};
use crate::shim::{Dial, Shim};

/// A running program. Derefs to its [`Process`].
pub struct Program {
    process: Process,
    clock: Option<Shim>,
}

impl Program {
    pub(crate) fn start(
        bed: &Arc<BedState>,
        name: &str,
        program: &Path,
        args: &[&str],
        clock: bool,
    ) -> Result<Self> {
        let found = program.canonicalize();
        let name = bed.unique_name(name);
        let clock = clock.then(|| Shim::start(bed, &name, Dial::Clock)).transpose()?;
        let process_spec = ProcessSpec {
            name,
            program: found.map_err(Error::io(format!("find {}", program.display())))?,
            args: args.iter().map(OsString::from).collect(),
            env: Shim::env(&clock),
            probe: Probe::Talks,
        };
        Ok(Self { process: Process::start(bed, process_spec)?, clock })
    }

    /// Hands out the program's stdin and stdout. They are handed out once per start; the caller
    /// finds out by talking whether the program is ready.
    #[must_use]
    pub fn pipes(&self) -> Option<(ChildStdin, ChildStdout)> {
        self.process.pipes()
    }

    /// Sets its wall clock: this many milliseconds ahead of the true time, or behind it if
    /// negative. It sees that at its next look at the clock.
    ///
    /// # Errors
    /// If it was not started by [`Bed::program_with_clock`](crate::Bed::program_with_clock).
    pub fn jump_clock(&self, offset_ms: i64) -> Result<()> {
        match &self.clock {
            Some(clock) => clock.set(offset_ms),
            None => Err(self.failed("was started without a clock of its own".into())),
        }
    }
}

impl Deref for Program {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.process.fmt(f)
    }
}
