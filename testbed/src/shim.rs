//! What one process sees of the machine, turned from outside: its wall clock, and its disk.
//!
//! The process runs with a small library before the C library's functions of that sort
//! (`shim/*.c`), which is compiled when a bed first needs it.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use crate::bed_state::{BedState, write_private};
use crate::error::{Error, Result};
use crate::probe::Probe;
use crate::process::{Process, ProcessSpec};

/// What can be turned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dial {
    /// How many milliseconds the wall clock is ahead of the true time.
    Clock,
    /// 1 while the disk takes what is written, but never says that it is safe.
    Disk,
    /// 1 while the disk has no space for another block.
    FullDisk,
}

/// One dial of one process. It is at 0 until it is set.
#[derive(Clone, Debug)]
pub(crate) struct Shim {
    dial: Dial,
    library: PathBuf,
    file: PathBuf,
}

impl Dial {
    fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Disk => "disk",
            Self::FullDisk => "full_disk",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Self::Clock => include_str!("../shim/clock.c"),
            Self::Disk => include_str!("../shim/disk.c"),
            Self::FullDisk => include_str!("../shim/full_disk.c"),
        }
    }

    /// The variable that names the file with the value.
    fn variable(self) -> &'static str {
        match self {
            Self::Clock => "TESTBED_CLOCK",
            Self::Disk => "TESTBED_DISK",
            Self::FullDisk => "TESTBED_FULL_DISK",
        }
    }
}

impl Shim {
    /// A dial for the process of that name.
    pub(crate) fn start(bed: &Arc<BedState>, name: &str, dial: Dial) -> Result<Self> {
        let library = library(bed, dial)?;
        let file = bed.path(&format!("{name}.{}", dial.name()));
        write_private(&file, &"\0".repeat(2 * size_of::<i64>()))?;
        Ok(Self { dial, library, file })
    }

    /// What a process with these dials must have in its environment.
    pub(crate) fn env<'a>(shims: impl IntoIterator<Item = &'a Self>) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (mut libraries, mut env) = (Vec::new(), Vec::new());
        for shim in shims {
            libraries.push(text(&shim.library));
            env.push((shim.dial.variable().to_owned(), text(&shim.file)));
        }
        if !libraries.is_empty() {
            env.push(("LD_PRELOAD".into(), libraries.join(":")));
        }
        env
    }

    /// How often the process met what was turned, if its library counts that.
    pub(crate) fn count(&self) -> Result<i64> {
        let mut bytes = [0; size_of::<i64>()];
        let read = fs::File::open(&self.file).and_then(|file| file.read_exact_at(&mut bytes, 8));
        read.map_err(Error::io(format!("read {}", self.file.display())))?;
        Ok(i64::from_ne_bytes(bytes))
    }

    /// Turns it.
    pub(crate) fn set(&self, value: i64) -> Result<()> {
        // In place: the process has the file's bytes in its memory.
        OpenOptions::new()
            .write(true)
            .open(&self.file)
            .and_then(|file| file.write_all_at(&value.to_ne_bytes(), 0))
            .map_err(Error::io(format!("write {}", self.file.display())))
    }
}

/// Compiles the library unless that has been done.
fn library(bed: &Arc<BedState>, dial: Dial) -> Result<PathBuf> {
    // Held while compiling: concurrent callers wait for the result.
    let mut libraries = bed.shim_libraries.lock().unwrap_or_else(PoisonError::into_inner);
    let name = dial.name();
    if let Some(path) = libraries.get(name) {
        return Ok(path.clone());
    }
    let (source, path) = (bed.path(&format!("{name}.c")), bed.path(&format!("{name}.so")));
    write_private(&source, dial.source())?;
    let mut args: Vec<OsString> = ["-shared", "-fPIC", "-O2", "-o"].map(Into::into).to_vec();
    args.extend([path.clone().into(), source.into()]);
    let process_spec = ProcessSpec {
        name: format!("{name}-shim"),
        program: bed.programs.need("cc", "gcc")?,
        args,
        env: vec![],
        probe: Probe::Exit,
    };
    Process::start(bed, process_spec)?;
    libraries.insert(name, path.clone());
    Ok(path)
}
