//! Rungs of the ladder as races: left the lock that breaks, right its repair. Each lane runs what
//! `loadtest learn` runs of its side, with the rung's own fault, load and flags, and the rung
//! judges it.

use std::time::Instant;

use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_plan::CellPlan;
use loadtest_lab::faults::{FaultKind, FaultRequirements};
use loadtest_lab::ladder::{Breach, Rung, RungSide, WatchedSide};
use loadtest_measure::error::Result;
use serde::Serialize;
use serde_json::Value;

use crate::event_log::Priority;
use crate::lab_text::lab_text;
use crate::lane::LaneDeployment;
use crate::lease_sampler::LeaseSampler;
use crate::race::Arena;
use crate::replica_times::ReplicaTimes;
use crate::setup::{LaneSetup, RaceSetup};
use crate::wire::{self, BOTH, LaneTap};

/// The sides in the order of the lanes.
pub(crate) const SIDES: [RungSide; 2] = [RungSide::Broken, RungSide::Repaired];

/// The race of a rung.
pub(crate) fn setup_of(rung: &'static Rung, seed: u64) -> RaceSetup {
    let load = rung.cell_plan(RungSide::Broken, seed).load;
    let users = u64::try_from(load.users).unwrap_or(u64::MAX);
    let lanes = SIDES.map(|side| {
        let cell = rung.side(side);
        LaneSetup { axes: cell.trial.axes, fenced: cell.is_fenced(), bug: cell.bug }
    });
    RaceSetup { seed, users, stock: load.stock, lanes, challenge: None, rung: Some(rung.slug) }
}

/// The run of the rung's side in that lane, without a bar in the terminal.
pub(crate) fn plan_of(rung: &Rung, lane: usize, seed: u64) -> CellPlan {
    CellPlan { together: true, ..rung.cell_plan(SIDES[lane], seed) }
}

/// What the servers of a lane need: a Redis of its own, so that the page shows its commands only,
/// and what the fault needs.
pub(crate) fn requirements_of(plan: &CellPlan) -> FaultRequirements {
    let mut requirements = plan.trial.requirements(&plan.schedule);
    requirements.own_redis = true;
    requirements
}

/// What the page needs of a rung.
#[derive(Debug, Serialize)]
pub(crate) struct RungLink {
    slug: &'static str,
    number: usize,
    command: String,
    next: Option<&'static str>,
    /// The name of its fault, if it has a moment.
    fault: Option<&'static str>,
    /// The code of the refusals that show its breach, if they do.
    refusal: Option<&'static str>,
}

impl RungLink {
    pub(crate) fn of(rung: &Rung) -> Self {
        let (slug, number, command) = (rung.slug, rung.number(), rung.command());
        let next = rung.next().map(|next| next.slug);
        let fault = rung.broken.trial.fault.map(FaultKind::name);
        let refusal = match rung.breach {
            // Without the status.
            Breach::Refusals { code, .. } => code.split(' ').nth(1),
            _ => None,
        };
        Self { slug, number, command, next, fault, refusal }
    }
}

/// What the rung says of a lane.
#[derive(Debug, Serialize)]
pub(crate) struct RungVerdict {
    /// A code that the page has a text for.
    outcome: &'static str,
    /// What was seen.
    evidence: Vec<Value>,
}

/// All outcomes.
#[cfg(test)]
pub(crate) const OUTCOMES: [&str; 4] = ["broke", "withstood", "missed", "wrong"];

impl RungVerdict {
    fn of(rung: &Rung, side: RungSide, report: &CellReport) -> Self {
        let outcome = match side {
            RungSide::Broken if report.ok() => "broke",
            RungSide::Repaired if report.ok() => "withstood",
            _ if side.is_worth_retrying(report) => "missed",
            _ => "wrong",
        };
        let evidence = rung.evidence(report).iter().map(|line| lab_text(line)).collect();
        Self { outcome, evidence }
    }
}

/// A side of a rung, and the lane that it runs in.
struct RungLane<'a> {
    rung: &'static Rung,
    index: usize,
    lane: &'a LaneDeployment,
    plan: &'a CellPlan,
}

impl Arena {
    /// Runs both sides of a rung to their verdicts; when they began.
    pub(crate) async fn run_rung(
        &self,
        rung: &'static Rung,
        lanes: [&LaneDeployment; 2],
        plans: &[CellPlan; 2],
    ) -> Result<Instant> {
        let [left, right] =
            [0, 1].map(|index| RungLane { rung, index, lane: lanes[index], plan: &plans[index] });
        let (side_left, side_right) = tokio::try_join!(left.open(), right.open())?;
        let race_start = Instant::now();
        self.push_state(BOTH, race_start, ("running", ""));
        let (left_run, right_run) = tokio::join!(
            self.run_side(&left, side_left, race_start),
            self.run_side(&right, side_right, race_start)
        );
        left_run.and(right_run)?;
        Ok(race_start)
    }

    async fn run_side(
        &self,
        rung_lane: &RungLane<'_>,
        side: WatchedSide<'_>,
        race_start: Instant,
    ) -> Result<()> {
        let RungLane { rung, index, lane, .. } = *rung_lane;
        let deployment = &lane.deployment;
        // Its clock starts with the run.
        let tap = LaneTap::new(index, 0, side.users(), self.logs.events.clone());
        let earlier = ReplicaTimes::of(deployment);
        let leases = LeaseSampler::new(index, race_start, self.logs.events.clone());
        let voucher = side.voucher();
        let report = tokio::select! {
            report = side.run(tap.clone().observer()) => report,
            never = self.lanes[index].record_commands(lane, race_start) => match never {},
            never = leases.run(lane, voucher, &tap) => match never {},
        };
        let report = report.inspect_err(|error| {
            self.push_state(index, race_start, ("failed", &error.sentence()));
        })?;
        let times = earlier.zip(ReplicaTimes::of(deployment));
        let cpu_ms = times.and_then(|(earlier, now)| now.per_order_ms(&earlier, report.orders));
        let said = RungVerdict::of(rung, SIDES[index], &report);
        let verdict = wire::verdict(index, race_start, (&report, cpu_ms), Some(&said));
        self.logs.events.push(verdict, Priority::Race);
        self.push_state(index, race_start, ("judged", ""));
        Ok(())
    }
}

impl<'a> RungLane<'a> {
    async fn open(&self) -> Result<WatchedSide<'a>> {
        let side = (self.rung, SIDES[self.index]);
        WatchedSide::open(side, &self.lane.deployment, self.plan).await
    }
}

#[cfg(test)]
mod tests {
    use loadtest_lab::ladder::RUNGS;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_rung_is_a_race_with_the_load_the_fault_and_the_flags_of_its_command() {
        for rung in RUNGS {
            let setup = RaceSetup::parse(&json!({"rung": rung.slug, "seed": 7})).expect("a race");
            for (index, side) in SIDES.into_iter().enumerate() {
                let (plan, own) = (setup.plan(index), rung.cell_plan(side, 7));
                assert_eq!(plan.identity(), own.identity(), "{}", rung.slug);
                let lane = setup.lanes[index];
                assert_eq!((lane.axes, lane.bug), (own.trial.axes, own.load.injected_bug));
            }
        }
    }

    #[test]
    fn only_the_seed_of_a_rung_can_be_chosen() {
        for (value, said) in [
            (json!({"rung": "setnx", "users": 10}), "unknown field users; allowed: rung, seed"),
            (json!({"rung": "spinlock"}), "rung must be one of no-lock, jvm-lock, setnx,"),
            (json!({"rung": 3}), "rung must be one of no-lock,"),
        ] {
            let error = RaceSetup::parse(&value).expect_err("refused").to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
