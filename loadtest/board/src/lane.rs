//! One lane: its deployment, which stays from race to race while its cell is the same, and the
//! faults that a person injects into it.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use loadtest_lab::cell_plan::CellPlan;
use loadtest_lab::cluster::Cluster;
use loadtest_lab::deployment::{Deployment, DeploymentSpec};
use loadtest_lab::faults::{ActionContext, FaultAction, ProcessState, heal_all, replica_name};
use loadtest_load::history::{Event, FAULT, Mark, Recorder};
use loadtest_measure::error::{Error, Result};
use tokio::sync::{Mutex, RwLock, RwLockReadGuard, oneshot};
use tokio::time::Instant;

use crate::board_error::{BoardError, ErrorCode};
use crate::commands::CommandLog;
use crate::held_locks::{LockSource, LockWatch};
use crate::lab_text::lab_text;
use crate::lock_rows::ReplicaProcesses;
use crate::rung_race;
use crate::setup::{LaneSetup, RaceSetup};

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

/// A deployment and what it was started for.
#[derive(Debug)]
pub(crate) struct LaneDeployment {
    pub(crate) deployment: Deployment,
    pub(crate) setup: LaneSetup,
    /// Whether it is that of a rung, whose bug or fault may have left something.
    is_of_rung: bool,
}

impl LaneDeployment {
    fn actions(&self) -> ActionContext<'_> {
        let LaneSetup { axes, fenced, .. } = self.setup;
        let (lock, guards) = (axes.lock, axes.guards);
        ActionContext { deployment: &self.deployment, lock, guards, fenced }
    }
}

/// One lane.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    deployment: RwLock<Option<LaneDeployment>>,
    /// The faults of the race; none between races. It is locked while a fault is injected, so one
    /// fault follows the other.
    faults: Mutex<Option<RaceFaults>>,
    commands: Arc<CommandLog>,
    locks: Arc<LockWatch>,
}

/// The faults of a race.
#[derive(Debug)]
struct RaceFaults {
    recorder: Recorder,
    /// Actions that heal what is broken and no process shows, with the index of the replica.
    healing: BTreeSet<(FaultAction, usize)>,
    /// Replicas that were to be started again and may have ended because of that.
    failed_restarts: BTreeSet<usize>,
    /// Replicas that ended without a fault that was asked for.
    died: BTreeSet<usize>,
}

impl RaceFaults {
    fn new(recorder: Recorder) -> Self {
        let (healing, failed_restarts, died) = Default::default();
        Self { recorder, healing, failed_restarts, died }
    }

    /// Marks the replica if it has ended by itself.
    async fn look_for_death(&mut self, deployment: &Deployment, index: usize) {
        // There is no status of a process that a fault has killed.
        let status = deployment.replicas().get(index).and_then(|replica| replica.exit_status());
        let is_told = self.died.contains(&index) || self.failed_restarts.contains(&index);
        let Some(status) = status.filter(|_| !is_told) else { return };
        self.died.insert(index);
        let name = format!("exit {}", replica_name(index));
        mark_as(&self.recorder, name, "died", &status.to_string()).await;
    }
}

impl Lane {
    /// A lane without a deployment, whose commands and locks are shown there.
    pub(crate) fn new(commands: Arc<CommandLog>, locks: Arc<LockWatch>) -> Self {
        Self { commands, locks, ..Self::default() }
    }

    /// Reads the locks that are held while a page asks for them, also between races. It does not
    /// end.
    pub(crate) async fn watch_locks(&self) -> Infallible {
        loop {
            let changes = self.locks.wanted().await;
            let source = self.lock_source().await;
            self.locks.follow(source, changes).await;
        }
    }

    async fn lock_source(&self) -> LockSource {
        let Some(lane) = &*self.deployment.read().await else { return LockSource::NoDeployment };
        let lock = lane.setup.axes.lock;
        if !lock.is_distributed() {
            return LockSource::NoServer;
        }
        let command = lane.deployment.inspector(lock);
        let processes = lane.deployment.replicas().iter().map(|replica| replica.pid()).collect();
        LockSource::Command(Box::new(command), ReplicaProcesses(processes))
    }

    /// Records the commands of a race while a page asks for them. It does not end.
    pub(crate) async fn record_commands(
        &self,
        lane: &LaneDeployment,
        race_start: std::time::Instant,
    ) -> Infallible {
        let (lock, race_start) = (lane.setup.axes.lock.name(), Instant::from_std(race_start));
        self.commands.record(&lane.deployment, lock, race_start).await
    }

    /// The processes for which the deployment cannot be used again, if it is that of this lane.
    pub(crate) async fn unfit_processes(&self, setup: LaneSetup) -> Vec<(String, ProcessState)> {
        match &*self.deployment.read().await {
            Some(lane) if !lane.is_of_rung && lane.setup == setup => not_running(&lane.deployment),
            _ => Vec::new(),
        }
    }

    /// Has the deployment of this plan running. One that does not fit, or whose replicas do not all
    /// run, is replaced.
    pub(crate) async fn prepare(
        &self,
        cluster: &Cluster,
        (index, race): (usize, &RaceSetup),
        plan: &CellPlan,
    ) -> Result<()> {
        let mut lane = self.deployment.write().await;
        let (setup, is_of_rung) = (race.lanes[index], race.rung.is_some());
        let fits = |one: &LaneDeployment| {
            let is_kept = !one.is_of_rung && !is_of_rung && one.setup == setup;
            is_kept && not_running(&one.deployment).is_empty()
        };
        if lane.as_ref().is_some_and(fits) {
            return Ok(());
        }
        self.locks.change();
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
            replicas: setup.axes.replicas,
            flags: plan.flags.clone(),
            needs: setup.axes.lock.needs(),
            requirements: match race.rung {
                Some(_) => rung_race::requirements_of(plan),
                None => FaultAction::requirements(),
            },
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
        *lane = Some(LaneDeployment { deployment, setup, is_of_rung });
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
        *self.faults.lock().await = Some(RaceFaults::new(recorder));
    }

    /// Lets no more faults happen, and heals what they left. It fails if a replica has died that no
    /// fault has killed.
    pub(crate) async fn close(&self, lane: &LaneDeployment) -> Result<()> {
        let mut faults = self.faults.lock().await;
        let Some(mut faults) = faults.take() else { return Ok(()) };
        for index in 0..lane.deployment.replicas().len() {
            faults.look_for_death(&lane.deployment, index).await;
        }
        let RaceFaults { recorder, healing, died, .. } = faults;
        let healed = heal_all(&lane.actions()).await;
        // Links are healed first, whatever happens to the replicas.
        let processes = healed.as_ref().ok().into_iter().flatten().copied();
        for fault in healing.into_iter().chain(processes) {
            mark(&recorder, fault, "healed", "at the end of the race").await;
        }
        healed?;
        let died: Vec<_> = died.into_iter().map(replica_name).collect();
        if died.is_empty() { Ok(()) } else { Err(Error::Died(died.join(" and "))) }
    }

    /// Injects a fault, and records it with what was seen of it.
    pub(crate) async fn inject(
        &self,
        action: FaultAction,
        replica: usize,
    ) -> std::result::Result<String, BoardError> {
        let mut faults = self.faults.lock().await;
        let Some(faults) = &mut *faults else {
            return Err(BoardError::new(ErrorCode::NoRaceRunning, "no race is running"));
        };
        let failed = |error: Error| {
            BoardError::new(ErrorCode::FaultFailed, error.to_string())
                .with("detail", lab_text(&error.to_string()))
        };
        let lane = self.deployment().await.map_err(failed)?;
        let actions = lane.actions();
        check_state(&actions, action, replica)?;
        let fault = (action, replica);
        faults.look_for_death(&lane.deployment, replica).await;
        let RaceFaults { recorder, healing, failed_restarts, .. } = faults;
        // A restart takes the replica down first.
        if !action.heals() || action == FaultAction::Restart {
            mark(recorder, fault, "begin", "").await;
        }
        let seen = actions.carry_out(action, replica).await;
        let has_clock = lane.deployment.redis().has_clock();
        healing.extend(healing_of(action, has_clock).map(|heals| (heals, replica)));
        if action == FaultAction::Restart && seen.is_err() {
            failed_restarts.insert(replica);
        }
        if action.heals() {
            self.commands.disarm();
        }
        // Its locks are on another server, or its processes are other ones.
        if matches!(action, FaultAction::FailOverRedis | FaultAction::Restart) {
            self.locks.change();
        }
        match seen {
            Ok(witness) => {
                let phase = if action.heals() { "healed" } else { "witness" };
                mark(recorder, fault, phase, &witness).await;
                healing.remove(&fault);
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
        self.locks.change();
        if let Some(lane) = self.deployment.write().await.take() {
            lane.deployment.end().await;
        }
    }
}

/// The action that ends this one, if there may be something to end. What was not seen to fail may
/// be broken all the same, but not a clock that cannot be set.
fn healing_of(action: FaultAction, has_clock: bool) -> Option<FaultAction> {
    action.healed_by().filter(|heals| has_clock || *heals != FaultAction::RestoreClock)
}

/// The replicas, and the main Redis, that do not run, with their states.
fn not_running(deployment: &Deployment) -> Vec<(String, ProcessState)> {
    let replicas = deployment.replicas().iter().map(|replica| ProcessState::of(replica));
    let replicas = replicas.enumerate().map(|(index, state)| (replica_name(index), state));
    // A failover has left it dead.
    let redis = ("Redis".to_owned(), ProcessState::of(deployment.main_redis()));
    let all = replicas.chain([redis]);
    all.filter(|(_, state)| *state != ProcessState::Running).collect()
}

/// Refuses a fault that cannot happen to its target.
fn check_state(
    actions: &ActionContext<'_>,
    action: FaultAction,
    index: usize,
) -> std::result::Result<(), BoardError> {
    let Some((name, state)) = actions.target(action, index) else {
        let name = replica_name(index);
        let why = format!("the lane has no replica {name}");
        return Err(BoardError::new(ErrorCode::NoSuchReplica, why).with("replica", name));
    };
    if action.is_allowed(state) {
        return Ok(());
    }
    let why = format!("{name} is {}: it cannot {}", state.name(), action.name());
    let error = BoardError::new(ErrorCode::FaultNotAllowed, why).with("replica", name);
    Err(error.with("state", state.name()).with("action", action.name()))
}

async fn mark(
    recorder: &Recorder,
    (action, index): (FaultAction, usize),
    phase: &str,
    detail: &str,
) {
    let name = if action.is_of_replica() {
        format!("{} {}", action.name(), replica_name(index))
    } else {
        action.name().to_owned()
    };
    mark_as(recorder, name, phase, detail).await;
}

async fn mark_as(recorder: &Recorder, name: String, phase: &str, detail: &str) {
    let mark = Mark {
        t: recorder.now(),
        what: FAULT.into(),
        name: name.into(),
        phase: phase.to_owned().into(),
        detail: detail.to_owned().into(),
    };
    recorder.record(Event::Mark(mark)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_cannot_be_set_is_not_set_right_at_the_end() {
        assert_eq!(healing_of(FaultAction::JumpClock, true), Some(FaultAction::RestoreClock));
        assert_eq!(healing_of(FaultAction::JumpClock, false), None);
        let [cut, heal] = ["cut-redis", "heal-redis"].map(|name| FaultAction::named(name).unwrap());
        assert_eq!(healing_of(cut, false), Some(heal));
    }
}
