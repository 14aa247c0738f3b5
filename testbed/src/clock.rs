//! A wall clock that can be set, for one server.
//!
//! The server runs with a small library before the C library's functions that tell the time
//! (`shim/clock.c`), which is compiled when a bed first needs it.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::bed::{Inner, write_private};
use crate::error::{Error, Result};
use crate::probe::Probe;
use crate::process::{Process, Recipe};

const SOURCE: &str = include_str!("../shim/clock.c");

/// The compiled library of a bed, once there is one.
#[derive(Debug, Default)]
pub(crate) struct ClockShim {
    library: Mutex<Option<PathBuf>>,
}

/// The clock of one server.
#[derive(Debug)]
pub(crate) struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl ClockShim {
    /// Compiles the library unless that has been done.
    fn library(&self, bed: &Arc<Inner>) -> Result<PathBuf> {
        // Held while compiling: whoever comes meanwhile waits for the result.
        let mut library = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &*library {
            return Ok(path.clone());
        }
        let (source, path) = (bed.path("clock.c"), bed.path("clock.so"));
        write_private(&source, SOURCE)?;
        let mut args: Vec<OsString> = ["-shared", "-fPIC", "-O2", "-o"].map(Into::into).to_vec();
        args.extend([path.clone().into(), source.into()]);
        let recipe = Recipe {
            name: "clock-shim".into(),
            program: bed.programs.need("cc", "gcc")?,
            args,
            env: vec![],
            probe: Probe::Exit,
        };
        Process::start(bed, recipe)?;
        Ok(library.insert(path).clone())
    }
}

impl Clock {
    /// A clock that tells the true time until it is set; `name` is that of its server.
    pub(crate) fn start(bed: &Arc<Inner>, name: &str) -> Result<Self> {
        let library = bed.clock_shim.library(bed)?;
        let clock = Self { library, file: bed.path(&format!("{name}.clock")) };
        write_private(&clock.file, "\0\0\0\0\0\0\0\0")?;
        Ok(clock)
    }

    /// What the server must have in its environment.
    pub(crate) fn env(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        vec![("LD_PRELOAD".into(), text(&self.library)), ("TESTBED_CLOCK".into(), text(&self.file))]
    }

    /// Sets how far it is ahead of the true time.
    pub(crate) fn set(&self, offset_ms: i64) -> Result<()> {
        // In place: the server has the file's bytes in its memory.
        OpenOptions::new()
            .write(true)
            .open(&self.file)
            .and_then(|file| file.write_all_at(&offset_ms.to_ne_bytes(), 0))
            .map_err(Error::io(format!("write {}", self.file.display())))
    }
}
