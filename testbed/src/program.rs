//! A program that is talked to: its stdin and stdout are pipes, its stderr is its log.

use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;

use crate::bed::Inner;
use crate::error::{Error, Result};
use crate::probe::Probe;
use crate::process::{Process, Recipe};

/// A running program. Derefs to its [`Process`].
pub struct Program {
    process: Process,
}

impl Program {
    pub(crate) fn start(
        bed: &Arc<Inner>,
        name: &str,
        program: &Path,
        args: &[&str],
    ) -> Result<Self> {
        let found = program.canonicalize();
        let recipe = Recipe {
            name: bed.unique_name(name),
            program: found.map_err(Error::io(format!("find {}", program.display())))?,
            args: args.iter().map(OsString::from).collect(),
            env: vec![],
            probe: Probe::Talks,
        };
        Ok(Self { process: Process::start(bed, recipe)? })
    }

    /// Its stdin and its stdout. They are handed out once per start; whoever has them finds out
    /// by talking whether the program is ready.
    pub fn pipes(&self) -> Option<(ChildStdin, ChildStdout)> {
        self.process.pipes()
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
