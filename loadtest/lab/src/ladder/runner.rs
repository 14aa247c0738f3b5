//! Runs rungs, each side on a deployment of its own.

use std::time::Instant;

use loadtest_load::moment::rfc3339;
use loadtest_measure::error::Result;
use loadtest_measure::machine::Machine;
use tokio_util::sync::CancellationToken;

use super::{Rung, RungSide};
use crate::cell::CellReport;
use crate::cell_axes::Load;
use crate::matrix::MAX_TRIES;
use crate::results::{CellSelection, RunResults};
use crate::runner::{ClusterSpec, Runner};

/// What runs rungs.
#[derive(Debug)]
pub struct LadderRunner {
    parts: ClusterSpec,
    runner: Runner,
    seed: u64,
    began: Instant,
    started_at: String,
}

impl LadderRunner {
    /// Starts the servers that these rungs need.
    pub async fn start(
        parts: ClusterSpec,
        rungs: &[&Rung],
        seed: u64,
        stop: &CancellationToken,
    ) -> Result<Self> {
        let (began, started_at) = (Instant::now(), rfc3339(time::OffsetDateTime::now_utc()));
        let sides = |rung: &&Rung| [rung.broken.trial, rung.repaired.trial];
        let trials: Vec<_> = rungs.iter().flat_map(sides).collect();
        let runner = Runner::start(parts.clone(), &trials, stop).await?;
        Ok(Self { parts, runner, seed, began, started_at })
    }

    /// Runs one side until it shows what the rung says, at most [`MAX_TRIES`] times. The seed rises
    /// with each try, or the same schedule would miss again. A side that found something else is
    /// not tried again.
    pub async fn run(
        &mut self,
        rung: &Rung,
        side: RungSide,
        stop: &CancellationToken,
    ) -> CellReport {
        let mut tries = 1;
        loop {
            let seed = self.seed.wrapping_add(u64::from(tries) - 1);
            let report = self.runner.run_plan(&rung.cell_plan(side, seed), stop).await;
            let report = CellReport { seed, tries, ..rung.judge(side, report) };
            let is_last = tries == MAX_TRIES || stop.is_cancelled();
            if is_last || !side.is_worth_retrying(&report) {
                return report;
            }
            tries += 1;
        }
    }

    /// The results of these cells, which `command` has run.
    pub fn results(self, cells: Vec<CellReport>, command: String) -> RunResults {
        let selection = CellSelection {
            not_generated: Vec::new(),
            resumed: 0,
            seed: self.seed,
            preset: None,
            sample: None,
            command: Some(command),
        };
        RunResults {
            cells,
            not_applicable: Vec::new(),
            selection: Some(selection),
            injected_bugs: None,
            load: Load::DEFAULT,
            chosen: self.parts.chosen,
            settings: self.runner.settings(),
            versions: self.runner.versions(),
            machine: Machine::read(),
            started_at: self.started_at,
            took_s: self.began.elapsed().as_secs_f64(),
        }
    }
}
