//! A sale that is watched while it runs: users arrive at random moments, an observer sees each
//! event of the history, and the judge gives the verdict afterwards. A person may inject faults
//! meanwhile.

use std::sync::Arc;
use std::time::Duration;

use loadtest_load::arrival::Arrival;
use loadtest_load::client::{Connection, Target};
use loadtest_load::drive;
use loadtest_load::history::{EventObserver, Recorder};
use loadtest_load::history_file::HistoryFile;
use loadtest_load::live::LiveFigures;
use loadtest_load::plan::Plan;
use loadtest_load::stats::Figures;
use loadtest_measure::error::Result;
use tokio_util::sync::CancellationToken;

use crate::cell::CellReport;
use crate::cell_axes::{CellAxes, Load};
use crate::cell_plan::{CellPlan, CellRequest};
use crate::cell_spec::{CellSpec, FAULT_LEASE_MS};
use crate::deployment::Deployment;
use crate::faults::FaultAction;
use crate::sale::Sale;

/// When a request is given up: a replica may be frozen, and the race has to end.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);

/// The plan of a cell that a person watches; `fenced` has holders show fencing tokens. A lease is
/// as short as in cells with a fault, so that a fault outlasts it soon.
pub fn watched_plan(axes: CellAxes, fenced: bool, load: &Load, seed: u64) -> CellPlan {
    let trial = CellSpec::plain(axes);
    let plan = CellPlan::of(&CellRequest { trial, default_load: load, seed });
    let mut flags = trial.flags(&plan.load, FaultAction::requirements());
    flags.extend(["--lease-ms".to_owned(), FAULT_LEASE_MS.to_string()]);
    flags.extend(fenced.then(|| "--fenced".to_owned()));
    CellPlan { flags, ..plan }
}

/// A voucher on sale whose load has not begun.
#[derive(Debug)]
pub struct WatchedSale<'a> {
    sale: Sale<'a>,
    plan: Plan,
    connections: Vec<Connection>,
    recorded: HistoryFile,
}

impl<'a> WatchedSale<'a> {
    /// Puts a voucher on sale and opens all connections of the load.
    pub async fn open(
        deployment: &'a Deployment,
        cell_plan: &'a CellPlan,
        users_per_s: f64,
    ) -> Result<Self> {
        let sale = Sale::open(deployment, cell_plan).await?;
        let target = Target::parse(deployment.url())?;
        let plan = sale.plan(&sale.users, target, cell_plan.load.requests_per_user);
        // At random: users at equal distances might never meet on a quick machine.
        let arrival = Arrival::Poisson(users_per_s);
        let plan = Plan { arrival, timeout: REQUEST_TIMEOUT, ..plan };
        plan.check()?;
        let connections = drive::connect(&plan).await?;
        let recorded = sale.record(&plan)?;
        Ok(Self { sale, plan, connections, recorded })
    }

    /// The ids of its users. The same seed draws the same positions of this list.
    pub fn users(&self) -> impl Iterator<Item = u64> {
        self.plan.users.iter().map(|user| user.id)
    }

    /// The id of its voucher.
    pub fn voucher(&self) -> u64 {
        self.sale.voucher
    }

    /// Shows each event from now on to the observer.
    pub fn observe(&mut self, observer: EventObserver) {
        self.recorded.observe(observer);
    }

    /// Where marks are recorded; its clock is that of the history.
    pub fn recorder(&self) -> Recorder {
        self.recorded.recorder().clone()
    }

    /// Runs the load to its end; once `stop` is cancelled, no further user arrives.
    pub async fn run(&mut self, stop: &CancellationToken) -> Result<Figures> {
        let live = Arc::new(LiveFigures::new(&self.plan));
        let connections = std::mem::take(&mut self.connections);
        drive::run_until(stop, &self.plan, connections, (self.recorded.recorder(), &live)).await
    }

    /// Reads the outcome of the voucher, and judges it. All faults must have been healed.
    pub async fn judge(self, figures: Figures) -> Result<CellReport> {
        self.sale.judge_and_end(self.recorded, figures).await
    }
}
