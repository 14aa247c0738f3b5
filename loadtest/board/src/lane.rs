//! One lane: its deployment, which stays from race to race while its cell is the same, and the
//! faults that a person injects into it.

use std::collections::BTreeSet;

use loadtest_lab::cell_axes::CellAxes;
use loadtest_lab::cell_plan::CellPlan;
use loadtest_lab::cluster::Cluster;
use loadtest_lab::deployment::{Deployment, DeploymentSpec};
use loadtest_lab::faults::{FaultAction, ReplicaState, heal_all, replica_name};
use loadtest_load::history::{Event, FAULT, Mark, Recorder};
use loadtest_measure::error::{Error, Result};
use tokio::sync::{Mutex, RwLock, RwLockReadGuard, oneshot};

use crate::board_error::{BoardError, ErrorCode};

/// The number of the left lane's deployment in its cluster; 0 is that of `loadtest up`.
const FIRST_NUMBER: u16 = 1;

/// A fault that a person asked for.
#[derive(Debug)]
pub(crate) struct FaultRequest {
    /// What shall happen.
    pub(crate) action: FaultAction,
    /// To which replica, from 0.
    pub(crate) replica: usize,
    /// What was seen of it, or why it did not happen.
    pub(crate) reply: oneshot::Sender<std::result::Result<String, BoardError>>,
}

/// A deployment and the cell that it was started for.
#[derive(Debug)]
pub(crate) struct LaneDeployment {
    pub(crate) deployment: Deployment,
    pub(crate) axes: CellAxes,
}

/// One lane.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    deployment: RwLock<Option<LaneDeployment>>,
    /// The faults of the race; none between races. It is locked while a fault is injected, so one
    /// fault follows the other.
    faults: Mutex<Option<RaceFaults>>,
}

/// The faults of a race.
#[derive(Debug)]
struct RaceFaults {
    recorder: Recorder,
    /// Replicas whose link to Redis is cut.
    cut: BTreeSet<usize>,
}

impl Lane {
    /// The replicas for which the deployment cannot be used again, if it is that of this plan.
    pub(crate) async fn unfit_replicas(&self, plan: &CellPlan) -> Vec<(String, ReplicaState)> {
        match &*self.deployment.read().await {
            Some(lane) if lane.axes == plan.trial.axes => not_running(&lane.deployment),
            _ => Vec::new(),
        }
    }

    /// Has the deployment of this plan running. One that does not fit, or whose replicas do not all
    /// run, is replaced.
    pub(crate) async fn prepare(
        &self,
        cluster: &Cluster,
        index: usize,
        plan: &CellPlan,
    ) -> Result<()> {
        let mut lane = self.deployment.write().await;
        let axes = plan.trial.axes;
        let fits =
            |one: &LaneDeployment| one.axes == axes && not_running(&one.deployment).is_empty();
        if lane.as_ref().is_some_and(fits) {
            return Ok(());
        }
        let number = FIRST_NUMBER + u16::try_from(index).unwrap_or(0);
        let schema = format!("sale_{number}");
        if let Some(old) = lane.take()
            && old.deployment.end_and_drop().await.is_err()
        {
            // Its Redis may have ended, which is no reason to keep its database.
            cluster.drop_schema(&schema).await?;
        }
        let spec = DeploymentSpec {
            number,
            replicas: axes.replicas,
            flags: plan.flags.clone(),
            needs: axes.lock.needs(),
            requirements: FaultAction::requirements(),
            ..DeploymentSpec::default()
        };
        let deployment = match cluster.deploy(spec).await {
            Ok(deployment) => deployment,
            Err(error) => {
                // A database that was created is in the way of the next attempt.
                let _ = cluster.drop_schema(&schema).await;
                return Err(error);
            }
        };
        *lane = Some(LaneDeployment { deployment, axes });
        Ok(())
    }

    /// The deployment, which stays while this is held.
    pub(crate) async fn deployment(&self) -> Result<RwLockReadGuard<'_, LaneDeployment>> {
        let lane = self.deployment.read().await;
        RwLockReadGuard::try_map(lane, Option::as_ref)
            .map_err(|_| Error::Setup("the lane has no deployment".to_owned()))
    }

    /// Lets faults happen from now on.
    pub(crate) async fn open(&self, recorder: Recorder) {
        *self.faults.lock().await = Some(RaceFaults { recorder, cut: BTreeSet::new() });
    }

    /// Lets no more faults happen, and heals what they left.
    pub(crate) async fn close(&self, lane: &LaneDeployment) -> Result<()> {
        let mut faults = self.faults.lock().await;
        let Some(RaceFaults { recorder, cut }) = faults.take() else { return Ok(()) };
        let healed = heal_all(&lane.deployment, lane.axes.lock).await;
        // Links are healed first, whatever happens to the replicas.
        let links = cut.into_iter().map(|index| (FaultAction::HealRedis, index));
        for fault in links.chain(healed.as_ref().ok().into_iter().flatten().copied()) {
            mark(&recorder, fault, "healed", "at the end of the race").await;
        }
        healed.map(|_| ())
    }

    /// Injects a fault, and records it with what was seen of it.
    pub(crate) async fn inject(
        &self,
        action: FaultAction,
        replica: usize,
    ) -> std::result::Result<String, BoardError> {
        let mut faults = self.faults.lock().await;
        let Some(RaceFaults { recorder, cut }) = &mut *faults else {
            return Err(BoardError::new(ErrorCode::NoRaceRunning, "no race is running"));
        };
        let failed = |error: Error| {
            BoardError::new(ErrorCode::FaultFailed, error.to_string())
                .with("detail", error.to_string())
        };
        let lane = self.deployment().await.map_err(failed)?;
        check_state(&lane.deployment, action, replica)?;
        let (begin, fault) = (recorder.now(), (action, replica));
        let seen = action.carry_out(&lane.deployment, lane.axes.lock, replica).await;
        // A restart takes the replica down first.
        if !action.heals() || action == FaultAction::Restart {
            mark_at(recorder, begin, fault, ("begin", "")).await;
        }
        match seen {
            Ok(witness) => {
                let phase = if action.heals() { "healed" } else { "witness" };
                mark(recorder, fault, phase, &witness).await;
                match action {
                    FaultAction::CutRedis => cut.insert(replica),
                    FaultAction::HealRedis => cut.remove(&replica),
                    _ => false,
                };
                Ok(witness)
            }
            Err(error) => {
                mark(recorder, fault, "failed", &error.to_string()).await;
                Err(failed(error))
            }
        }
    }

    /// Kills the lane's servers.
    pub(crate) async fn take_down(&self) {
        if let Some(lane) = self.deployment.write().await.take() {
            lane.deployment.end().await;
        }
    }
}

/// The replicas that do not run, with their states.
fn not_running(deployment: &Deployment) -> Vec<(String, ReplicaState)> {
    let states = deployment.replicas().iter().map(|replica| ReplicaState::of(replica));
    let named = states.enumerate().map(|(index, state)| (replica_name(index), state));
    named.filter(|(_, state)| *state != ReplicaState::Running).collect()
}

/// Refuses a fault that cannot happen to the replica.
fn check_state(
    deployment: &Deployment,
    action: FaultAction,
    index: usize,
) -> std::result::Result<(), BoardError> {
    let name = replica_name(index);
    let Some(replica) = deployment.replicas().get(index) else {
        let why = format!("the lane has no replica {name}");
        return Err(BoardError::new(ErrorCode::NoSuchReplica, why).with("replica", name));
    };
    let state = ReplicaState::of(replica);
    if !action.is_of_replica() || action.is_allowed(state) {
        return Ok(());
    }
    let why = format!("{name} is {}: it cannot {}", state.name(), action.name());
    let error = BoardError::new(ErrorCode::FaultNotAllowed, why).with("replica", name);
    Err(error.with("state", state.name()).with("action", action.name()))
}

async fn mark(recorder: &Recorder, fault: (FaultAction, usize), phase: &str, detail: &str) {
    mark_at(recorder, recorder.now(), fault, (phase, detail)).await;
}

async fn mark_at(
    recorder: &Recorder,
    t: u64,
    (action, index): (FaultAction, usize),
    (phase, detail): (&str, &str),
) {
    let name = if action.is_of_replica() {
        format!("{} {}", action.name(), replica_name(index))
    } else {
        action.name().to_owned()
    };
    let mark = Mark {
        t,
        what: FAULT.into(),
        name: name.into(),
        phase: phase.to_owned().into(),
        detail: detail.to_owned().into(),
    };
    recorder.record(Event::Mark(mark)).await;
}
