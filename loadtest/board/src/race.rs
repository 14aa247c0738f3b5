//! Races: both lanes begin at the same moment, and each is judged when its load is over.

use std::sync::Arc;
use std::time::Instant;

use loadtest_lab::cell::CellReport;
use loadtest_lab::cluster::Cluster;
use loadtest_lab::watched_sale::WatchedSale;
use loadtest_measure::error::Result;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use crate::challenge::{Challenge, PlannedFault};
use crate::event_log::Priority;
use crate::lane::{FaultRequest, Lane, LaneDeployment};
use crate::lease_sampler::LeaseSampler;
use crate::race_logs::RaceLogs;
use crate::replica_times::ReplicaTimes;
use crate::setup::{RaceSetup, USERS_PER_S};
use crate::wire::{self, BOTH, LaneTap};

/// A race that a page asked for.
#[derive(Debug)]
pub(crate) struct RaceRequest {
    pub(crate) setup: RaceSetup,
    /// Held until the race is over: one race at a time.
    pub(crate) turn: OwnedSemaphorePermit,
}

/// What pages ask for.
#[derive(Debug)]
pub(crate) struct BoardRequests {
    pub(crate) races: mpsc::Receiver<RaceRequest>,
    pub(crate) faults: [mpsc::Receiver<FaultRequest>; 2],
}

/// The two lanes.
#[derive(Debug)]
pub(crate) struct Arena {
    cluster: Arc<Cluster>,
    pub(crate) logs: RaceLogs,
    pub(crate) lanes: [Lane; 2],
}

impl Arena {
    pub(crate) fn new(cluster: Arc<Cluster>, logs: RaceLogs) -> Self {
        let RaceLogs { commands: [left, right], locks: [left_locks, right_locks], .. } =
            logs.clone();
        let lanes = [Lane::new(left, left_locks), Lane::new(right, right_locks)];
        Self { cluster, logs, lanes }
    }

    /// Serves requests until pages can send none any more. Faults happen during races.
    pub(crate) async fn serve(&self, requests: BoardRequests) {
        let BoardRequests { mut races, faults: [left, right] } = requests;
        let racing = async {
            while let Some(RaceRequest { setup, turn }) = races.recv().await {
                Box::pin(self.race(&setup)).await;
                drop(turn);
            }
        };
        let requests = async { tokio::join!(racing, self.inject(0, left), self.inject(1, right)) };
        tokio::select! {
            _ended = requests => {}
            never = self.lanes[0].watch_locks() => match never {},
            never = self.lanes[1].watch_locks() => match never {},
        }
    }

    async fn inject(&self, lane: usize, mut faults: mpsc::Receiver<FaultRequest>) {
        while let Some(FaultRequest { action, replica, reply }) = faults.recv().await {
            // The page may have disconnected.
            let _ = reply.send(self.lanes[lane].inject(action, replica).await);
        }
    }

    /// Takes the lanes down.
    pub(crate) async fn take_down(&self) {
        tokio::join!(self.lanes[0].take_down(), self.lanes[1].take_down());
    }

    async fn race(&self, setup: &RaceSetup) {
        let began = Instant::now();
        self.logs.begin(setup.to_json());
        self.push_state(BOTH, began, ("preparing", ""));
        match Box::pin(self.run(setup)).await {
            Ok(race_start) => {
                let left_out = match self.logs.events.left_out() {
                    0 => String::new(),
                    count => count.to_string(),
                };
                self.push_state(BOTH, race_start, ("done", &left_out));
            }
            Err(error) => self.push_state(BOTH, began, ("failed", &error.sentence())),
        }
    }

    pub(crate) fn push_state(&self, lane: usize, began: Instant, state: (&str, &str)) {
        self.logs.events.push(wire::state(lane, began, state), Priority::Race);
    }

    /// Runs a race to its verdicts; when it began.
    async fn run(&self, setup: &RaceSetup) -> Result<Instant> {
        let plans = [0, 1].map(|lane| setup.plan(lane));
        let [left, right] = &self.lanes;
        for (index, (lane, lane_setup)) in self.lanes.iter().zip(setup.lanes).enumerate() {
            for (process, state) in lane.unfit_processes(lane_setup).await {
                let replaced = wire::replaced(index, &process, state);
                self.logs.events.push(replaced, Priority::Race);
            }
        }
        // If one fails, the other is not left half started.
        let (left_ready, right_ready) = tokio::join!(
            left.prepare(&self.cluster, (0, setup), &plans[0]),
            right.prepare(&self.cluster, (1, setup), &plans[1])
        );
        left_ready.and(right_ready)?;
        let (left, right) = tokio::try_join!(left.deployment(), right.deployment())?;
        if let Some(rung) = setup.ladder_rung() {
            return Box::pin(self.run_rung(rung, [&left, &right], &plans)).await;
        }
        let (sale_left, sale_right) = tokio::try_join!(
            WatchedSale::open(&left.deployment, &plans[0], f64::from(USERS_PER_S)),
            WatchedSale::open(&right.deployment, &plans[1], f64::from(USERS_PER_S))
        )?;
        let race_start = Instant::now();
        self.push_state(BOTH, race_start, ("running", ""));
        let fault = setup.challenge.and_then(Challenge::planned_fault);
        let (left_run, right_run) = tokio::join!(
            self.run_lane((0, race_start), sale_left, &left, fault),
            self.run_lane((1, race_start), sale_right, &right, fault)
        );
        let (report, is_seen) = left_run.and(right_run)?;
        if let Some(challenge) = setup.challenge {
            let result = Challenge::result(&report, is_seen);
            let event = wire::challenge(race_start, challenge.number, result);
            self.logs.events.push(event, Priority::Race);
        }
        Ok(race_start)
    }

    /// Runs a lane to its verdict: the judge's report, and whether the planned fault was seen.
    async fn run_lane(
        &self,
        (index, race_start): (usize, Instant),
        mut sale: WatchedSale<'_>,
        deployment: &LaneDeployment,
        fault: Option<PlannedFault>,
    ) -> Result<(CellReport, bool)> {
        let lane = &self.lanes[index];
        let users: Vec<u64> = sale.users().collect();
        let recorder = sale.recorder();
        let tap = LaneTap::new(
            index,
            recorder.since(race_start),
            users.into_iter(),
            self.logs.events.clone(),
        );
        sale.observe(tap.clone().observer());
        lane.open(sale.recorder()).await;
        let earlier = ReplicaTimes::of(&deployment.deployment);
        let leases = LeaseSampler::new(index, race_start, self.logs.events.clone());
        let (stop, voucher) = (CancellationToken::new(), sale.voucher());
        let racing = async { tokio::join!(sale.run(&stop), inject_planned(lane, fault)) };
        let (figures, is_seen) = tokio::select! {
            ended = racing => ended,
            never = lane.record_commands(deployment, race_start) => match never {},
            never = leases.run(deployment, voucher, &tap) => match never {},
        };
        let times = earlier.zip(ReplicaTimes::of(&deployment.deployment));
        let healed = lane.close(deployment).await;
        self.push_state(index, race_start, ("judging", ""));
        let report = async {
            healed?;
            sale.judge(figures?).await
        };
        let report = report.await.inspect_err(|error| {
            self.push_state(index, race_start, ("failed", &error.sentence()));
        })?;
        let cpu_ms = times.and_then(|(earlier, now)| now.per_order_ms(&earlier, report.orders));
        let verdict = wire::verdict(index, race_start, (&report, cpu_ms), None);
        self.logs.events.push(verdict, Priority::Race);
        self.push_state(index, race_start, ("judged", ""));
        Ok((report, is_seen))
    }
}

/// Injects the fault at its time; whether it was seen to happen. Without a fault there is nothing
/// to be seen.
async fn inject_planned(lane: &Lane, fault: Option<PlannedFault>) -> bool {
    let Some(PlannedFault { action, after }) = fault else { return true };
    tokio::time::sleep(after).await;
    // The log of the lane has the error.
    lane.inject(action, 0).await.is_ok()
}
