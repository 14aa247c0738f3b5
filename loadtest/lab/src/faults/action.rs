//! Faults that a person switches on and off: each action stays until another one undoes it, or is
//! over when its witness is told.

use std::path::Path;

use testbed::Process;

use super::replicas::state_of;
use super::{FaultRequirements, Link, NetworkFault, network};

/// What the process of a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs.
    Running,
    /// It stands still (SIGSTOP).
    Frozen,
    /// There is none.
    Down,
}

impl ProcessState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Running, Self::Frozen, Self::Down];

    /// The state of this process now.
    pub fn of(process: &Process) -> Self {
        if !process.is_running() {
            Self::Down
        } else if state_of(process.pid()) == 'T' {
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

/// What an action happens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionTarget {
    /// One replica, or a link of it.
    Replica,
    /// The Redis of the lock.
    Redis,
}

/// One action on a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultAction {
    /// A replica stands still (SIGSTOP).
    Freeze,
    /// A frozen replica continues (SIGCONT).
    Thaw,
    /// A replica is killed (SIGKILL).
    Kill,
    /// A replica is started again, after being killed if it runs.
    Restart,
    /// A replica stands still past its lease while its COMMIT, or its token, is on the way.
    FreezeHolder,
    /// A replica stands still past its lease before it writes, and then gives back its lock.
    StandStill,
    /// The next COMMIT of a replica is executed and its answer lost.
    LoseCommit,
    /// The Redis of the lock forgets all keys while a replica's COMMIT is on the way.
    FlushAtCommit,
    /// A link of a replica fails in that way.
    Fail(NetworkFault, Link),
    /// A link of a replica is sound again.
    Heal(Link),
    /// The Redis of the lock forgets all keys.
    FlushRedis,
    /// The Redis of the lock stands still.
    FreezeRedis,
    /// It continues.
    ThawRedis,
    /// The main Redis is killed, and a replica of it that lags takes over.
    FailOverRedis,
    /// The clock of the lock's Redis jumps ahead.
    JumpClock,
    /// That clock is right again.
    RestoreClock,
}

impl FaultAction {
    /// All actions, in the order in which they are offered.
    pub const ALL: [Self; 26] = [
        Self::Freeze,
        Self::Thaw,
        Self::Kill,
        Self::Restart,
        Self::FreezeHolder,
        Self::StandStill,
        Self::LoseCommit,
        Self::FlushAtCommit,
        Self::Fail(NetworkFault::Cut, Link::Redis),
        Self::Fail(NetworkFault::Delay, Link::Redis),
        Self::Fail(NetworkFault::HalfOpen, Link::Redis),
        Self::Heal(Link::Redis),
        Self::Fail(NetworkFault::Cut, Link::Database),
        Self::Fail(NetworkFault::Delay, Link::Database),
        Self::Fail(NetworkFault::HalfOpen, Link::Database),
        Self::Heal(Link::Database),
        Self::Fail(NetworkFault::Cut, Link::Zookeeper),
        Self::Fail(NetworkFault::Delay, Link::Zookeeper),
        Self::Fail(NetworkFault::HalfOpen, Link::Zookeeper),
        Self::Heal(Link::Zookeeper),
        Self::FlushRedis,
        Self::FreezeRedis,
        Self::ThawRedis,
        Self::FailOverRedis,
        Self::JumpClock,
        Self::RestoreClock,
    ];

    /// The name in JSON and in histories.
    pub fn name(self) -> &'static str {
        match self {
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
            Self::Kill => "kill",
            Self::Restart => "restart",
            Self::FreezeHolder => "freeze-holder",
            Self::StandStill => "stand-still-past-lease",
            Self::LoseCommit => "lose-commit",
            Self::FlushAtCommit => "flush-redis-at-commit",
            Self::Fail(fault, link) => network::name(fault, link),
            Self::Heal(Link::Redis) => "heal-redis",
            Self::Heal(Link::Database) => "heal-database",
            Self::Heal(Link::Replica) => "heal-replica",
            Self::Heal(Link::Zookeeper) => "heal-zookeeper",
            Self::FlushRedis => "flush-redis",
            Self::FreezeRedis => "freeze-redis",
            Self::ThawRedis => "thaw-redis",
            Self::FailOverRedis => "fail-over-redis",
            Self::JumpClock => "jump-clock",
            Self::RestoreClock => "restore-clock",
        }
    }

    /// The action of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }

    /// What it happens to.
    pub fn target(self) -> ActionTarget {
        match self {
            Self::FlushRedis
            | Self::FreezeRedis
            | Self::ThawRedis
            | Self::FailOverRedis
            | Self::JumpClock
            | Self::RestoreClock => ActionTarget::Redis,
            _ => ActionTarget::Replica,
        }
    }

    /// Whether it happens to one replica, and not to all.
    pub fn is_of_replica(self) -> bool {
        self.target() == ActionTarget::Replica
    }

    /// Whether it ends a fault.
    pub fn heals(self) -> bool {
        let others = matches!(self, Self::Thaw | Self::Restart | Self::Heal(_));
        others || matches!(self, Self::ThawRedis | Self::RestoreClock)
    }

    /// The action that ends this one, for what no process shows: links and clocks.
    pub fn healed_by(self) -> Option<Self> {
        match self {
            Self::Fail(_, link) => Some(Self::Heal(link)),
            Self::JumpClock => Some(Self::RestoreClock),
            _ => None,
        }
    }

    /// Whether it can happen to a target in that state.
    pub fn is_allowed(self, state: ProcessState) -> bool {
        match self {
            Self::Thaw | Self::ThawRedis => state == ProcessState::Frozen,
            Self::Kill | Self::RestoreClock => state != ProcessState::Down,
            Self::Restart | Self::Fail(..) | Self::Heal(_) => true,
            _ => state == ProcessState::Running,
        }
    }

    /// What a deployment must have for all actions. A clock that can be set needs a C compiler:
    /// without one, an action on it fails and says so.
    pub fn requirements() -> FaultRequirements {
        let servers = FaultRequirements {
            own_redis: true,
            follower: true,
            clock: has_compiler(),
            ..FaultRequirements::default()
        };
        let links = [Link::Redis, Link::Database, Link::Zookeeper].map(FaultRequirements::link);
        links.into_iter().fold(servers, FaultRequirements::and)
    }
}

/// Whether a C compiler is installed.
fn has_compiler() -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| Path::new(&folder).join("cc").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_is_found_by_its_name_and_no_two_share_one() {
        for action in FaultAction::ALL {
            assert_eq!(FaultAction::named(action.name()), Some(action));
        }
        assert_eq!(FaultAction::named("heal-replica"), None, "that link is not offered");
    }

    #[test]
    fn what_an_action_breaks_is_healed_by_one_that_can_be_asked_for() {
        for action in FaultAction::ALL {
            let Some(healing) = action.healed_by() else { continue };
            assert!(healing.heals() && !action.heals(), "{action:?}");
            assert!(FaultAction::ALL.contains(&healing), "{healing:?}");
            assert_eq!(healing.target(), action.target(), "{action:?}");
        }
    }
}
