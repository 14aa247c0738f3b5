//! The plan of a cell: everything that is decided before a server is started.

use std::path::PathBuf;
use std::sync::Arc;

use loadtest_load::live::LiveFigures;
use loadtest_load::plan::Plan;
use loadtest_load::progress::Progress;
use serde::{Deserialize, Serialize};

use crate::cell_axes::Load;
use crate::cell_spec::CellSpec;
use crate::faults::Schedule;

/// All that a cell is run from, settled before anything is started.
#[derive(Debug, Clone)]
pub struct CellPlan {
    /// The cell.
    pub trial: CellSpec,
    /// Its load.
    pub load: Load,
    /// What happens when.
    pub schedule: Schedule,
    /// Flags of `seckill serve`.
    pub flags: Vec<String>,
    /// What settled the schedule.
    pub seed: u64,
    /// Where its history goes; to no file that stays, if none is named.
    pub history: Option<PathBuf>,
    /// Whether other cells run at the same time.
    pub together: bool,
}

impl CellPlan {
    /// A cell of the matrix.
    pub fn of(wanted: &CellRequest<'_>) -> Self {
        let CellRequest { trial, default_load, seed } = *wanted;
        let load = trial.load(default_load);
        let schedule = Schedule::of(seed, &trial.to_string(), trial.axes.replicas);
        let schedule = schedule.for_lock(trial.axes.lock, default_load.mode);
        let flags = trial.flags(&load, trial.requirements(&schedule));
        Self { trial, load, schedule, flags, seed, history: None, together: false }
    }

    /// A bar that follows its load, unless other cells run at the same time.
    pub(super) fn follow(&self, live: &Arc<LiveFigures>, plan: &Plan) -> Option<Progress> {
        (!self.together).then(|| Progress::follow(&self.trial.to_string(), live, plan))
    }

    /// All of it that comes out as something else if it is another.
    pub fn identity(&self) -> serde_json::Value {
        let Self { trial, load, schedule, flags, seed, history: _, together: _ } = self;
        serde_json::json!({
            "cell": trial, "load": load, "schedule": schedule, "flags": flags, "seed": seed,
        })
    }
}

/// What one cell is run from.
#[derive(Debug, Clone, Copy)]
pub struct CellRequest<'a> {
    /// The cell.
    pub trial: CellSpec,
    /// The load of cells that have none of their own.
    pub default_load: &'a Load,
    /// What settles its schedule.
    pub seed: u64,
}

/// How long a purchase waits for its lock by default, in milliseconds.
pub const DEFAULT_LOCK_WAIT_MS: u64 = 1000;
/// What it does on a lost lock then.
pub const DEFAULT_ON_LOST: &str = "stop";

/// What a cell was started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The flags of each replica's `seckill serve`, besides its address and its name.
    pub flags: Vec<String>,
    /// Its load.
    pub load: Load,
}

impl Setup {
    /// Whether that flag is there.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|one| one == flag)
    }

    /// The value of that flag, if it is there.
    pub fn value(&self, flag: &str) -> Option<&str> {
        let at = self.flags.iter().position(|one| one == flag)?;
        self.flags.get(at + 1).map(String::as_str)
    }
}
