//! What the handles of a bed share: its folder, its processes, and what starts them.

use std::collections::HashMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::programs::Programs;
use crate::slot::Slot;
use crate::spawner::Spawner;

/// The environment variable by which the reaper knows the bed's processes.
pub(crate) const MARK: &str = "TESTBED_MARK";

/// What the handles of a bed share.
#[derive(Debug)]
pub(crate) struct BedState {
    dir: PathBuf,
    mark: String,
    pub(crate) programs: Programs,
    pub(crate) ready_within: Duration,
    pub(crate) spawner: Spawner,
    /// The compiled libraries of `shim`, by name.
    pub(crate) shim_libraries: Mutex<HashMap<&'static str, PathBuf>>,
    closed: AtomicBool,
    slots: Mutex<Vec<Weak<Slot>>>,
    names: Mutex<HashMap<String, u32>>,
}

impl BedState {
    /// A bed without processes; its folder is the caller's to make.
    pub(crate) fn new(
        dir: PathBuf,
        mark: String,
        programs: Programs,
        ready_within: Duration,
        spawner: Spawner,
    ) -> Self {
        Self {
            dir,
            mark,
            programs,
            ready_within,
            spawner,
            shim_libraries: Mutex::default(),
            closed: AtomicBool::new(false),
            slots: Mutex::default(),
            names: Mutex::default(),
        }
    }

    /// The folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Where the logs are.
    pub(crate) fn log_folder(&self) -> PathBuf {
        self.path("logs")
    }

    /// Where the processes put what they would put into `/tmp`.
    pub(crate) fn temp_folder(&self) -> PathBuf {
        self.path("tmp")
    }

    /// The value of [`MARK`] for processes of this bed.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// `name` as a file can have it, with a number behind it if it is taken.
    pub(crate) fn unique_name(&self, name: &str) -> String {
        let keep = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let name: String = name.chars().take(64).map(keep).collect();
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let count = names.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name}-{count}") }
    }

    /// Whether the bed has been dropped. Asked with a slot locked, the answer holds until it is
    /// unlocked as far as that slot is concerned: closing empties each slot after saying so.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Remembers a process for the end of the bed.
    pub(crate) fn register(&self, slot: &Arc<Slot>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(slot));
    }

    /// Kills all processes; nothing can be started afterwards.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let slots = std::mem::take(&mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner));
        for slot in slots.iter().filter_map(Weak::upgrade) {
            let _ = slot.kill();
        }
    }
}

/// Creates a folder that is readable by this user only. It must not exist yet.
pub(crate) fn create_private_folder(path: &Path) -> Result<()> {
    let create = DirBuilder::new().mode(0o700).create(path);
    create.map_err(Error::io(format!("create {}", path.display())))
}

/// Writes a file that is readable by this user only, replacing what is there.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(Error::io(format!("write {}", path.display())))
}
