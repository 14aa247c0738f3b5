//! One thread that starts all processes of a bed.
//!
//! Each server is started through `setpriv --pdeathsig KILL`: the kernel kills it when its parent
//! has ended, whatever the parent died of. For the kernel the parent is the *thread* that forked,
//! and tests run on threads that end soon; so one thread does all the forking and ends with the
//! bed.

use std::io;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread;

use crate::error::{Error, Result};

/// A command and where its child goes.
type Job = (Command, SyncSender<io::Result<Child>>);

/// Handle on the thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Spawner {
    jobs: Mutex<Sender<Job>>,
}

impl Spawner {
    /// Starts the thread.
    pub(crate) fn start() -> Result<Self> {
        let (jobs, work) = channel::<Job>();
        thread::Builder::new()
            .name("testbed-spawner".into())
            .spawn(move || {
                for (mut command, answer) in work {
                    let _ = answer.send(command.spawn());
                }
            })
            .map_err(Error::io("start a thread"))?;
        Ok(Self { jobs: Mutex::new(jobs) })
    }

    /// Starts a process on the spawner's thread.
    pub(crate) fn spawn(&self, command: Command) -> Result<Child> {
        let program = command.get_program().to_string_lossy().into_owned();
        let (answer, child) = sync_channel(1);
        let jobs = self.jobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        jobs.send((command, answer)).map_err(|_| Error::Closed)?;
        drop(jobs);
        child.recv().map_err(|_| Error::Closed)?.map_err(Error::io(format!("start {program}")))
    }
}
