//! Faults that a person switches on and off: each action stays until another one undoes it.

use std::sync::Arc;

use loadtest_measure::error::{Error, Result};
use serde::{Deserialize, Serialize};
use testbed::{Proxy, Replica};

use super::replicas::state_of;
use super::{FaultRequirements, Link, redis, replica_name, witness};
use crate::cluster::blocking;
use crate::deployment::Deployment;
use crate::lock::Lock;

/// What the process of a replica does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaState {
    /// It runs.
    Running,
    /// It stands still (SIGSTOP).
    Frozen,
    /// There is none.
    Down,
}

impl ReplicaState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Running, Self::Frozen, Self::Down];

    /// The state of this replica now.
    pub fn of(replica: &Replica) -> Self {
        if !replica.is_running() {
            Self::Down
        } else if state_of(replica.pid()) == 'T' {
            Self::Frozen
        } else {
            Self::Running
        }
    }

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Frozen => "frozen",
            Self::Down => "down",
        }
    }
}

/// One action on a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultAction {
    /// A replica stands still (SIGSTOP).
    Freeze,
    /// A frozen replica continues (SIGCONT).
    Thaw,
    /// A replica is killed (SIGKILL).
    Kill,
    /// A replica is started again, after being killed if it runs.
    Restart,
    /// A replica cannot reach its Redis servers.
    CutRedis,
    /// A replica reaches them again.
    HealRedis,
    /// The Redis of the lock forgets all keys.
    FlushRedis,
}

impl FaultAction {
    /// All actions, in the order in which they are offered.
    pub const ALL: [Self; 7] = [
        Self::Freeze,
        Self::Thaw,
        Self::Kill,
        Self::Restart,
        Self::CutRedis,
        Self::HealRedis,
        Self::FlushRedis,
    ];

    /// The name in JSON and in histories.
    pub fn name(self) -> &'static str {
        match self {
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
            Self::Kill => "kill",
            Self::Restart => "restart",
            Self::CutRedis => "cut-redis",
            Self::HealRedis => "heal-redis",
            Self::FlushRedis => "flush-redis",
        }
    }

    /// The action of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }

    /// Whether it happens to one replica, and not to all.
    pub fn is_of_replica(self) -> bool {
        self != Self::FlushRedis
    }

    /// Whether it ends a fault.
    pub fn heals(self) -> bool {
        matches!(self, Self::Thaw | Self::Restart | Self::HealRedis)
    }

    /// Whether it can happen to a replica in that state.
    pub fn is_allowed(self, state: ReplicaState) -> bool {
        match self {
            Self::Freeze => state == ReplicaState::Running,
            Self::Thaw => state == ReplicaState::Frozen,
            Self::Kill => state != ReplicaState::Down,
            _ => true,
        }
    }

    /// What a deployment must have for all actions.
    pub fn requirements() -> FaultRequirements {
        let own_redis = FaultRequirements { own_redis: true, ..FaultRequirements::default() };
        own_redis.and(FaultRequirements::link(Link::Redis))
    }

    /// Carries it out on the replica of that index; what was seen of it. An action that the
    /// replica's state does not allow is a usage error.
    pub async fn carry_out(
        self,
        deployment: &Deployment,
        lock: Lock,
        index: usize,
    ) -> Result<String> {
        if self == Self::FlushRedis {
            let redis = deployment.redis().clone();
            let database = deployment.redis_database();
            let (keys, locks) = blocking(move || redis::flush_once(&redis, database, lock)).await?;
            return Ok(format!("FLUSHALL removed {keys} keys, {locks} of them locks"));
        }
        let name = replica_name(index);
        let replica = deployment.replicas().get(index).cloned();
        let replica = replica.ok_or_else(|| Error::Usage(format!("there is no replica {name}")))?;
        let state = ReplicaState::of(&replica);
        if !self.is_allowed(state) {
            let (state, action) = (state.name(), self.name());
            return Err(Error::Usage(format!("{name} is {state}: it cannot {action}")));
        }
        match self {
            Self::CutRedis | Self::HealRedis => {
                self.on_link(deployment.proxies(index, Link::Redis))
            }
            _ => self.on_process(replica, &name).await,
        }
    }

    async fn on_process(self, replica: Arc<Replica>, name: &str) -> Result<String> {
        let (before, target) = (replica.pid(), replica.clone());
        blocking(move || match self {
            Self::Freeze => target.freeze(),
            Self::Thaw => target.thaw(),
            Self::Kill => target.kill(),
            _ => target.restart(),
        })
        .await?;
        let (after, state) = (replica.pid(), state_of(replica.pid()));
        match self {
            Self::Freeze => witness(state == 'T', format!("{name} is in state {state}")),
            Self::Thaw => witness(state != 'T', format!("{name} is in state {state}")),
            Self::Kill => {
                witness(!replica.is_running(), format!("{name}, process {before}, has ended"))
            }
            _ => witness(before != after, format!("{name} was process {before} and is {after}")),
        }
    }

    fn on_link(self, proxies: &[Proxy]) -> Result<String> {
        if self == Self::HealRedis {
            proxies.iter().for_each(Proxy::heal);
            return witness(!proxies.is_empty(), "connections are accepted again".to_owned());
        }
        let cut = || proxies.iter().map(|proxy| proxy.counts().cut).sum::<u64>();
        let before = cut();
        proxies.iter().for_each(Proxy::start_outage);
        witness(!proxies.is_empty(), format!("{} connections cut", cut() - before))
    }
}

/// Ends every fault that an action has left: which actions that took, with the replica of each.
pub async fn heal_all(deployment: &Deployment, lock: Lock) -> Result<Vec<(FaultAction, usize)>> {
    // A replica that is restarted needs its links. Healing a sound one changes nothing.
    let indexes = 0..deployment.replicas().len();
    indexes.flat_map(|index| deployment.proxies(index, Link::Redis)).for_each(Proxy::heal);
    let (mut healed, mut failed) = (Vec::new(), None);
    for (index, replica) in deployment.replicas().iter().enumerate() {
        let action = match ReplicaState::of(replica) {
            ReplicaState::Running => continue,
            ReplicaState::Frozen => FaultAction::Thaw,
            ReplicaState::Down => FaultAction::Restart,
        };
        // The others are healed all the same.
        match action.carry_out(deployment, lock, index).await {
            Ok(_witness) => healed.push((action, index)),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(healed), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_is_found_by_its_name_which_is_that_in_json() {
        for action in FaultAction::ALL {
            assert_eq!(FaultAction::named(action.name()), Some(action));
            assert_eq!(serde_json::to_value(action).expect("JSON"), action.name());
        }
    }
}
