//! The process that cleans up after a bed whose own process can no longer do it.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::bed_state::MARK;
use crate::error::{Error, Result};
use crate::programs::Programs;

const SCRIPT: &str = include_str!("reaper.sh");

/// A shell that waits on a pipe from us. It runs in a session of its own, so that neither Ctrl-C
/// nor a closed terminal ends it, and holds none of our files open.
#[derive(Debug)]
pub(crate) struct Reaper {
    child: Child,
}

impl Reaper {
    /// Starts it for the bed that marks its processes with the environment entry `mark` and will
    /// live in `folder`.
    pub(crate) fn start(programs: &Programs, mark: &str, folder: &Path) -> Result<Self> {
        let child = Command::new(programs.need("setsid", "util-linux")?)
            .args(["sh", "-c", SCRIPT, "testbed-reaper", mark])
            .arg(folder)
            // If this program itself runs in a bed, that bed's reaper must not take this one.
            .env_remove(MARK)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::io("start the reaper"))?;
        Ok(Self { child })
    }

    /// The orderly end: it looks once for stragglers, removes the folder and exits.
    pub(crate) fn finish(&mut self) {
        if let Some(mut pipe) = self.child.stdin.take() {
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.child.wait();
    }
}
