//! A side of a rung that is watched while it runs, as [`super::LadderRunner`] runs it.

use loadtest_load::history::EventObserver;
use loadtest_measure::error::Result;

use super::{Rung, RungSide};
use crate::cell::{CellReport, run_sale};
use crate::cell_plan::CellPlan;
use crate::deployment::Deployment;
use crate::sale::Sale;

/// A side whose voucher is on sale and whose load has not begun.
#[derive(Debug)]
pub struct WatchedSide<'a> {
    rung: &'static Rung,
    side: RungSide,
    sale: Sale<'a>,
    cell_plan: &'a CellPlan,
}

impl<'a> WatchedSide<'a> {
    /// Puts the side's voucher on sale.
    pub async fn open(
        (rung, side): (&'static Rung, RungSide),
        deployment: &'a Deployment,
        cell_plan: &'a CellPlan,
    ) -> Result<Self> {
        let sale = Sale::open(deployment, cell_plan).await?;
        Ok(Self { rung, side, sale, cell_plan })
    }

    /// The voucher that it sells.
    pub fn voucher(&self) -> u64 {
        self.sale.voucher
    }

    /// The ids of its users.
    pub fn users(&self) -> impl Iterator<Item = u64> {
        self.sale.users.iter().map(|user| user.id)
    }

    /// Runs the side once, with its own fault, and holds the report against the rung. The observer
    /// sees each event; the clock of the history starts with the run.
    pub async fn run(mut self, observer: EventObserver) -> Result<CellReport> {
        self.sale.observer = Some(observer);
        let report = Box::pin(run_sale(&self.sale, self.cell_plan)).await?;
        Ok(self.rung.judge(self.side, report))
    }
}
