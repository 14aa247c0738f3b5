//! One lane: its deployment, which stays from race to race while its cell is the same, and the
//! faults that a person injects into it.

use loadtest_lab::cell_axes::CellAxes;
use loadtest_lab::cell_plan::CellPlan;
use loadtest_lab::cluster::Cluster;
use loadtest_lab::deployment::{Deployment, DeploymentSpec};
use loadtest_lab::faults::{FaultAction, heal_all, replica_name};
use loadtest_load::history::{Event, FAULT, Mark, Recorder};
use loadtest_measure::error::{Error, Result};
use tokio::sync::{Mutex, RwLock, RwLockReadGuard, oneshot};

/// The number of the left lane's deployment in its cluster; 0 is that of `loadtest up`.
const FIRST_NUMBER: u16 = 1;

/// A fault that a person asked for.
#[derive(Debug)]
pub(crate) struct FaultOrder {
    /// What is to happen.
    pub(crate) action: FaultAction,
    /// To which replica, from 0.
    pub(crate) replica: usize,
    /// What was seen of it, or why it did not happen.
    pub(crate) reply: oneshot::Sender<std::result::Result<String, String>>,
}

/// A deployment and the cell that it was started for.
#[derive(Debug)]
pub(crate) struct LaneDeployment {
    pub(crate) deployment: Deployment,
    pub(crate) place: CellAxes,
}

/// One lane.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    deployment: RwLock<Option<LaneDeployment>>,
    /// Where faults are recorded; none between races. It is locked while a fault is injected, so
    /// one fault follows the other.
    recorder: Mutex<Option<Recorder>>,
}

impl Lane {
    /// Has the deployment of this plan running. One that does not fit, or whose replicas do not all
    /// run, is replaced.
    pub(crate) async fn prepare(
        &self,
        cluster: &Cluster,
        index: usize,
        plan: &CellPlan,
    ) -> Result<()> {
        let mut lane = self.deployment.write().await;
        let place = plan.trial.place;
        let is_fit = |one: &LaneDeployment| one.place == place && one.deployment.dead().is_empty();
        if lane.as_ref().is_some_and(is_fit) {
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
            replicas: place.replicas,
            flags: plan.flags.clone(),
            needs: place.lock.needs(),
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
        *lane = Some(LaneDeployment { deployment, place });
        Ok(())
    }

    /// The deployment, which stays while this is held.
    pub(crate) async fn lend(&self) -> Result<RwLockReadGuard<'_, LaneDeployment>> {
        let lane = self.deployment.read().await;
        RwLockReadGuard::try_map(lane, Option::as_ref)
            .map_err(|_| Error::Setup("the lane has no deployment".to_owned()))
    }

    /// Lets faults happen from now on.
    pub(crate) async fn open(&self, recorder: Recorder) {
        *self.recorder.lock().await = Some(recorder);
    }

    /// Lets no more faults happen, and heals what they left.
    pub(crate) async fn close(&self, lent: &LaneDeployment) -> Result<()> {
        let mut recorder = self.recorder.lock().await;
        let Some(recorder) = recorder.take() else { return Ok(()) };
        for (action, index) in heal_all(&lent.deployment, lent.place.lock).await? {
            mark(&recorder, (action, index), "healed", "at the end of the race").await;
        }
        Ok(())
    }

    /// Injects a fault, and records it with what was seen of it.
    pub(crate) async fn inject(
        &self,
        action: FaultAction,
        replica: usize,
    ) -> std::result::Result<String, String> {
        let recorder = self.recorder.lock().await;
        let Some(recorder) = &*recorder else { return Err("no race is running".to_owned()) };
        let lent = self.lend().await.map_err(|error| error.to_string())?;
        let begin = recorder.now();
        let seen = action.carry_out(&lent.deployment, lent.place.lock, replica).await;
        let witness = seen.map_err(|error| error.to_string())?;
        if action.heals() {
            mark(recorder, (action, replica), "healed", &witness).await;
        } else {
            mark_at(recorder, begin, (action, replica), ("begin", "")).await;
            mark(recorder, (action, replica), "witness", &witness).await;
        }
        Ok(witness)
    }

    /// Kills the lane's servers.
    pub(crate) async fn take_down(&self) {
        if let Some(lane) = self.deployment.write().await.take() {
            lane.deployment.end().await;
        }
    }
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
