//! Races: both lanes begin at the same moment, and each is judged when its load is over.

use std::sync::Arc;
use std::time::Instant;

use loadtest_lab::cluster::Cluster;
use loadtest_lab::watched_sale::WatchedSale;
use loadtest_measure::error::Result;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use crate::event_log::{EventLog, Priority};
use crate::lane::{FaultOrder, Lane, LaneDeployment};
use crate::setup::{RaceSetup, USERS_PER_S};
use crate::wire::{self, BOTH, LaneTap};

/// A race that a page asked for.
#[derive(Debug)]
pub(crate) struct RaceOrder {
    pub(crate) setup: RaceSetup,
    /// Held until the race is over: one race at a time.
    pub(crate) turn: OwnedSemaphorePermit,
}

/// What pages ask for.
#[derive(Debug)]
pub(crate) struct Orders {
    pub(crate) races: mpsc::Receiver<RaceOrder>,
    pub(crate) faults: [mpsc::Receiver<FaultOrder>; 2],
}

/// The two lanes.
#[derive(Debug)]
pub(crate) struct Arena {
    cluster: Arc<Cluster>,
    log: Arc<EventLog>,
    lanes: [Lane; 2],
}

impl Arena {
    pub(crate) fn new(cluster: Arc<Cluster>, log: Arc<EventLog>) -> Self {
        Self { cluster, log, lanes: [Lane::default(), Lane::default()] }
    }

    /// Carries orders out until pages can give none any more. Faults happen during races.
    pub(crate) async fn carry_out(&self, orders: Orders) {
        let Orders { mut races, faults: [left, right] } = orders;
        let racing = async {
            while let Some(RaceOrder { setup, turn }) = races.recv().await {
                Box::pin(self.race(&setup)).await;
                drop(turn);
            }
        };
        tokio::join!(racing, self.inject(0, left), self.inject(1, right));
    }

    async fn inject(&self, lane: usize, mut faults: mpsc::Receiver<FaultOrder>) {
        while let Some(FaultOrder { action, replica, reply }) = faults.recv().await {
            // The page may have gone.
            let _ = reply.send(self.lanes[lane].inject(action, replica).await);
        }
    }

    /// Takes the lanes down.
    pub(crate) async fn take_down(&self) {
        tokio::join!(self.lanes[0].take_down(), self.lanes[1].take_down());
    }

    async fn race(&self, setup: &RaceSetup) {
        let began = Instant::now();
        self.log.begin(serde_json::to_string(setup).unwrap_or_default());
        self.tell(BOTH, began, ("preparing", ""));
        match Box::pin(self.run(setup)).await {
            Ok(zero) => {
                let left_out = match self.log.left_out() {
                    0 => String::new(),
                    count => count.to_string(),
                };
                self.tell(BOTH, zero, ("done", &left_out));
            }
            Err(error) => self.tell(BOTH, began, ("failed", &error.sentence())),
        }
    }

    fn tell(&self, lane: usize, began: Instant, state: (&str, &str)) {
        self.log.push(wire::state(lane, began, state), Priority::Race);
    }

    /// Runs a race to its verdicts; when it began.
    async fn run(&self, setup: &RaceSetup) -> Result<Instant> {
        let plans = [0, 1].map(|lane| setup.plan(lane));
        let [left, right] = &self.lanes;
        // If one fails, the other is not left half started.
        let (left_ready, right_ready) = tokio::join!(
            left.prepare(&self.cluster, 0, &plans[0]),
            right.prepare(&self.cluster, 1, &plans[1])
        );
        left_ready.and(right_ready)?;
        let (lent_left, lent_right) = tokio::try_join!(left.lend(), right.lend())?;
        let (sale_left, sale_right) = tokio::try_join!(
            WatchedSale::open(&lent_left.deployment, &plans[0], USERS_PER_S),
            WatchedSale::open(&lent_right.deployment, &plans[1], USERS_PER_S)
        )?;
        let zero = Instant::now();
        self.tell(BOTH, zero, ("running", ""));
        let (left, right) = tokio::join!(
            self.run_lane(0, zero, sale_left, &lent_left),
            self.run_lane(1, zero, sale_right, &lent_right)
        );
        left.and(right).map(|()| zero)
    }

    async fn run_lane(
        &self,
        index: usize,
        zero: Instant,
        mut sale: WatchedSale<'_>,
        lent: &LaneDeployment,
    ) -> Result<()> {
        let lane = &self.lanes[index];
        let users: Vec<u64> = sale.users().collect();
        let recorder = sale.recorder();
        let tap = LaneTap::new(index, (&recorder, zero), users.into_iter(), self.log.clone());
        sale.observe(tap.observer());
        lane.open(sale.recorder()).await;
        let figures = sale.run(&CancellationToken::new()).await;
        let healed = lane.close(lent).await;
        self.tell(index, zero, ("judging", ""));
        let report = async {
            healed?;
            sale.judge(figures?).await
        };
        let report = report.await.inspect_err(|error| {
            self.tell(index, zero, ("failed", &error.sentence()));
        })?;
        self.log.push(wire::verdict(index, zero, &report), Priority::Race);
        self.tell(index, zero, ("judged", ""));
        Ok(())
    }
}
