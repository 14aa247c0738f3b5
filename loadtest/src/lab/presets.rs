//! Cells that belong together: the smoke run, the story, and everything.

use clap::ValueEnum as _;
use serde::Serialize;

use crate::lab::dice::Dice;
use crate::lab::faults::{FaultKind, Link, Trouble};
use crate::lab::lock::Lock;
use crate::lab::matrix::{Axes, NotGenerated};
use crate::lab::place::{Path, Place};
use crate::lab::planting::SEEDS;
use crate::lab::predict::{Circumstance, Guards, Scope};
use crate::lab::trial::Trial;

/// Cells that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Every lock and every fault at least once, in a few minutes.
    Smoke,
    /// What a lock is good for.
    Story,
    /// Everything that has a prediction.
    Full,
}

impl Preset {
    /// The name of its flag.
    pub fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Story => "story",
            Self::Full => "full",
        }
    }

    /// So many of its cells, as that seed draws them.
    pub fn sample(trials: Vec<Trial>, count: usize, seed: u64) -> Vec<Trial> {
        Dice::of(seed, "sample").some_of(trials, count)
    }

    /// Names of the bugs that are planted after its cells, and seeds of each. None in the smoke
    /// run: a test of its own plants some.
    pub fn plants(self) -> (&'static [&'static str], u64) {
        match self {
            Self::Smoke => (&[], SEEDS),
            Self::Story => (&QUICK, 1),
            Self::Full => (&["all"], SEEDS),
        }
    }

    /// The same of any matrix, and of a part of a preset, which is there to be short: none.
    pub fn usual_plants(preset: Option<Self>, is_sample: bool) -> (&'static [&'static str], u64) {
        match preset {
            Some(preset) if !is_sample => preset.plants(),
            _ => (&[], SEEDS),
        }
    }

    /// Its cells, and combinations that are none.
    pub fn trials(self) -> (Vec<Trial>, Vec<NotGenerated>) {
        match self {
            Self::Smoke => (smoke(), Vec::new()),
            Self::Story => (story(), Vec::new()),
            Self::Full => full(),
        }
    }
}

/// Bugs that the story ends with: one of a lock, one of the sale, one of its account, none of which
/// needs a fault to show.
const QUICK: [&str; 3] = ["release-before-commit", "no-stock-condition", "lying-audit"];

/// For each fault the lock under which the smoke run has it: all locks but one have a turn, and the
/// last one, `none`, has its cell without a fault.
const SMOKE: [(FaultKind, Lock); 35] = [
    (FaultKind::KillReplica, Lock::Redisson),
    (FaultKind::FreezeReplica, Lock::LuaRelease),
    (FaultKind::RollingRestart, Lock::Redisson),
    (FaultKind::RestartRedis, Lock::Reentrant),
    (FaultKind::FlushRedis, Lock::Fair),
    (FaultKind::FlushScripts, Lock::Redisson),
    (FaultKind::EvictRedis, Lock::ReadWrite),
    (FaultKind::FreezeRedis, Lock::SetNx),
    (FaultKind::FailOverRedis, Lock::Redisson),
    (FaultKind::RedisClock, Lock::SetnxExpire),
    (FaultKind::PauseRedis, Lock::Redisson),
    (FaultKind::BusyRedis, Lock::Redisson),
    (FaultKind::LonelyRedis, Lock::Redisson),
    (FaultKind::RestartDatabase, Lock::MysqlNamed),
    (FaultKind::FreezeDatabase, Lock::MysqlTable),
    (FaultKind::Way(Trouble::Cut, Link::Redis), Lock::OwnerCheck),
    (FaultKind::Way(Trouble::Delay, Link::Redis), Lock::GetsetTimestamp),
    (FaultKind::Way(Trouble::Reset, Link::Redis), Lock::Multi),
    (FaultKind::Way(Trouble::HalfOpen, Link::Redis), Lock::Red),
    (FaultKind::Way(Trouble::Cut, Link::Database), Lock::MysqlRow),
    (FaultKind::Way(Trouble::Delay, Link::Database), Lock::Local),
    (FaultKind::Way(Trouble::Reset, Link::Database), Lock::Redisson),
    (FaultKind::Way(Trouble::HalfOpen, Link::Database), Lock::Redisson),
    (FaultKind::Way(Trouble::Cut, Link::Replica), Lock::Redisson),
    (FaultKind::Way(Trouble::Delay, Link::Replica), Lock::Redisson),
    (FaultKind::Way(Trouble::Reset, Link::Replica), Lock::Redisson),
    (FaultKind::Way(Trouble::HalfOpen, Link::Replica), Lock::Redisson),
    (FaultKind::Way(Trouble::Cut, Link::Zookeeper), Lock::Zookeeper),
    (FaultKind::Way(Trouble::Delay, Link::Zookeeper), Lock::Zookeeper),
    (FaultKind::Way(Trouble::Reset, Link::Zookeeper), Lock::Zookeeper),
    (FaultKind::Way(Trouble::HalfOpen, Link::Zookeeper), Lock::Zookeeper),
    (FaultKind::LoseCommit, Lock::Redisson),
    (FaultKind::LoseScript, Lock::Redisson),
    (FaultKind::HangUp, Lock::Redisson),
    (FaultKind::TwoAtOnce, Lock::Redisson),
];

/// Every lock and every fault at least once, in a few minutes.
fn smoke() -> Vec<Trial> {
    let plain = |lock, scope, guards| Trial::plain(Place { lock, scope, guards, replicas: 2 });
    let mut trials = vec![
        plain(Lock::None, Scope::User, Guards::On),
        Trial {
            circumstance: Circumstance::Inside,
            ..plain(Lock::Redisson, Scope::User, Guards::Off)
        },
        frozen(Lock::Redisson, Circumstance::FrozenUnfenced, 2),
        frozen(Lock::Redisson, Circumstance::FrozenFenced, 2),
    ];
    trials.extend(
        SMOKE.map(|(fault, lock)| Trial {
            fault: Some(fault),
            ..plain(lock, Scope::User, Guards::On)
        }),
    );
    trials
}

/// What a lock is good for, in the order in which it is told: the local lock against a distributed
/// one, on one replica and on three, without the database's guards and with them; work that
/// outlasts a lease; and one frozen holder without and with fencing.
fn story() -> Vec<Trial> {
    let mut trials = Vec::new();
    for guards in [Guards::Off, Guards::On] {
        for scope in [Scope::User, Scope::Voucher] {
            for replicas in [1, 3] {
                for lock in [Lock::Local, Lock::Redisson] {
                    trials.push(Trial::plain(Place { lock, scope, guards, replicas }));
                }
            }
        }
    }
    let place = |lock| Place { lock, scope: Scope::Voucher, guards: Guards::Off, replicas: 3 };
    let long = |lock, circumstance| Trial { place: place(lock), circumstance, fault: None };
    trials.extend([
        long(Lock::LuaRelease, Circumstance::LongWorkIgnored),
        long(Lock::LuaRelease, Circumstance::LongWorkStopped),
        long(Lock::Redisson, Circumstance::LongWorkKept),
        frozen(Lock::Redisson, Circumstance::FrozenUnfenced, 3),
        frozen(Lock::Redisson, Circumstance::FrozenFenced, 3),
    ]);
    trials
}

/// Everything that has a prediction, on two replicas and, without a fault, on one and on four.
fn full() -> (Vec<Trial>, Vec<NotGenerated>) {
    let locks = Lock::value_variants().to_vec();
    let scopes = vec![Scope::User, Scope::Voucher];
    let guards = vec![Guards::Off, Guards::On];
    let circumstances = Circumstance::value_variants().to_vec();
    let path = Path::Direct;
    let calm = Axes {
        locks: locks.clone(),
        scopes: scopes.clone(),
        guards: guards.clone(),
        replicas: vec![1, 2, 4],
        circumstances: circumstances.clone(),
        faults: vec![None],
        path,
    };
    let faults = FaultKind::ALL.map(Some).to_vec();
    let stormy = Axes { locks, scopes, guards, replicas: vec![2], circumstances, faults, path };
    let (mut trials, mut not_generated) = calm.trials();
    let (more, also_not) = stormy.trials();
    trials.extend(more);
    for one in also_not {
        match not_generated.iter_mut().find(|known| known.because == one.because) {
            Some(known) => known.combinations += one.combinations,
            None => not_generated.push(one),
        }
    }
    (trials, not_generated)
}

fn frozen(lock: Lock, circumstance: Circumstance, replicas: u16) -> Trial {
    let place = Place { lock, scope: Scope::Voucher, guards: Guards::Off, replicas };
    Trial { place, circumstance, fault: Some(FaultKind::FreezeReplica) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smoke_run_has_every_lock_and_every_fault() {
        let trials = smoke();
        for lock in Lock::value_variants() {
            assert!(trials.iter().any(|trial| trial.place.lock == *lock), "{lock:?}");
        }
        for fault in FaultKind::ALL {
            assert!(trials.iter().any(|trial| trial.fault == Some(fault)), "{fault:?}");
        }
    }

    #[test]
    fn the_smoke_run_has_a_lock_inside_the_transaction() {
        let inside = |trial: &Trial| trial.circumstance == Circumstance::Inside;
        let trial = smoke().into_iter().find(inside).expect("one");
        assert!(!trial.expectation().expect("a prediction").prediction.holds(), "it is to break");
    }

    #[test]
    fn every_cell_of_a_preset_has_a_prediction_and_comes_once() {
        for trials in [smoke(), story(), full().0] {
            for (index, trial) in trials.iter().enumerate() {
                assert!(trial.expectation().is_ok(), "{trial}: {:?}", trial.expectation());
                assert_eq!(trial.goes_on(Path::Direct), Ok(()), "{trial}");
                assert!(!trials[..index].contains(trial), "{trial} comes twice");
            }
        }
    }

    #[test]
    fn the_story_has_both_sides_of_everything_it_tells() {
        let trials = story();
        let has = |holds: bool, circumstance: Circumstance| {
            trials.iter().any(|trial| {
                trial.circumstance == circumstance
                    && trial.expectation().is_ok_and(|it| it.prediction.holds() == holds)
            })
        };
        assert!(has(true, Circumstance::ShortWork) && has(false, Circumstance::ShortWork));
        assert!(has(false, Circumstance::FrozenUnfenced) && has(true, Circumstance::FrozenFenced));
        assert!(has(false, Circumstance::LongWorkIgnored));
        assert!(has(true, Circumstance::LongWorkStopped) && has(true, Circumstance::LongWorkKept));
    }
}
