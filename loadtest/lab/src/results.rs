//! What a comparison or a matrix returns, and the events that it emits while it runs.

use std::fmt;

use loadtest_measure::machine::{Machine, Versions};
use loadtest_measure::server_settings::ServerSettings;
use serde::Serialize;

use crate::cell::CellReport;
use crate::cell_axes::{CellAxes, Load};
use crate::injection_results::{Attempt, InjectionResults};
use crate::matrix_axes::NotGenerated;
use crate::presets::Preset;
use crate::runner::Flag;

/// The results of a comparison or of a matrix.
#[derive(Debug)]
pub struct RunResults {
    /// The cells, in the order of the table.
    pub cells: Vec<CellReport>,
    /// Cells of a comparison that have nothing to show, and were not run.
    pub not_applicable: Vec<NotApplicable>,
    /// How the cells of a matrix were chosen; `None` for a comparison.
    pub selection: Option<CellSelection>,
    /// The results of injected bugs, if a matrix had any.
    pub injected_bugs: Option<InjectionResults>,
    /// The load of cells that have none of their own.
    pub load: Load,
    /// Flags that have chosen the servers and the service, if they are not the usual ones.
    pub chosen: Vec<Flag>,
    /// Settings of the servers that figures depend on.
    pub settings: ServerSettings,
    /// Versions of everything that took part.
    pub versions: Versions,
    /// The machine.
    pub machine: Machine,
    /// When the run began, RFC 3339.
    pub started_at: String,
    /// How long it took, in seconds.
    pub took_s: f64,
}

/// A cell that is not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NotApplicable {
    /// Which one.
    #[serde(flatten)]
    pub axes: CellAxes,
    /// Why it has nothing to show.
    pub because: &'static str,
}

impl fmt::Display for NotApplicable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: n/a, {}", self.axes, self.because)
    }
}

/// How the cells of a matrix were chosen.
#[derive(Debug)]
pub struct CellSelection {
    /// Combinations without a prediction.
    pub not_generated: Vec<NotGenerated>,
    /// Cells that an earlier run had finished.
    pub resumed: usize,
    /// What settled the schedules.
    pub seed: u64,
    /// The flag that names the cells, if one does.
    pub preset: Option<Preset>,
    /// How many of its cells were drawn, if not all.
    pub sample: Option<usize>,
    /// The command that chose the cells, if it is not `loadtest matrix`.
    pub command: Option<String>,
}

/// What a run reports while it runs.
#[derive(Debug, Clone, Copy)]
pub enum RunEvent<'a> {
    /// A cell was run to its end.
    CellFinished {
        /// Its results.
        cell: &'a CellReport,
        /// Its number, from 1.
        number: usize,
        /// How many cells there are.
        total: usize,
    },
    /// One seed of an injected bug was run to its end.
    SeedFinished {
        /// The bug's name.
        bug: &'static str,
        /// Its results.
        attempt: &'a Attempt,
    },
}

/// Receives the events of a run.
pub type RunObserver<'a> = &'a dyn Fn(RunEvent<'_>);
