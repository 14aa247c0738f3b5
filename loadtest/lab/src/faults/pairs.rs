//! Which two faults can happen at the same time: every pair of faults that can happen alone, unless
//! one removes what the other acts on or is seen by. Each reason is written.

use testbed::Replication;

use super::{FaultKind, Link, Schedule, TargetedFault};
use crate::cell_axes::PurchaseMode;
use crate::lock::Lock;
use crate::seeded_rng::SeededRng;

/// The pair that this number draws for that lock in that mode, of all that make sense.
pub(super) fn draw((lock, mode): (Lock, PurchaseMode), number: u64) -> [FaultKind; 2] {
    let pairs: Vec<_> = all(lock, mode).collect();
    let drawn = SeededRng::of(number, "two at once").one_of(&pairs);
    drawn.unwrap_or([FaultKind::FreezeReplica, FaultKind::FlushRedis])
}

/// All pairs that make sense under that lock in that mode, each once.
pub fn all(lock: Lock, mode: PurchaseMode) -> impl Iterator<Item = [FaultKind; 2]> {
    let suits = move |fault: &FaultKind| fault.suits(lock, mode).is_ok();
    let of = |one: usize| (one..FaultKind::ALL.len()).map(move |other| [one, other]);
    (0..FaultKind::ALL.len())
        .flat_map(of)
        .map(|pair| pair.map(|number| FaultKind::ALL[number]))
        .filter(move |[one, other]| suits(one) && suits(other) && excluded(*one, *other).is_none())
}

/// Why these two cannot happen at the same time; `None` if they can.
pub fn excluded(one: FaultKind, other: FaultKind) -> Option<&'static str> {
    if one == other {
        return Some("one fault is not two");
    }
    let (one, other) = (one.min(other), one.max(other));
    either(one, other).or_else(|| either(other, one))
}

/// Why the pair is excluded, seen from its first fault.
fn either(one: FaultKind, other: FaultKind) -> Option<&'static str> {
    use FaultKind as F;
    let (victim, way) = (one.stops_replica(), other.way());
    Some(match (one, other) {
        (F::TwoAtOnce, _) => "two at once would be three",
        (F::FailOverDatabase(Replication::Async), _) => {
            "it is predicted to lose orders, and two at once are predicted to lose none"
        }
        (F::OnTopology(_), _) => "it is one of servers that are several",
        (F::Targeted(_) | F::Failpoint, _) => {
            "it is made for one moment, which the other would move"
        }
        (F::LosePackets(_), _) => {
            "not every machine can lose packets, and a seed draws the same pair on each"
        }
        (F::Sentinel(_), _) => "the sentinels choose the moment, and replicas find Redis by them",
        (F::RollingRestart, _) if other != F::HangUp => {
            "a replica that starts needs its servers, and none of its neighbours may fail a request"
        }
        _ if victim && other.stops_replica() => "both stop the same replica",
        (F::KillReplica, _) if other.stops_database() || other.stops_redis() => {
            "the replica starts again while its servers do, and a start is not repeated"
        }
        (F::DatabaseDiskFull, _) if other.stops_replica() => {
            "a replica that stands still does not tell of its purchases"
        }
        _ if victim && matches!(other, F::Network(..)) => {
            "on the ways of a replica that stands still there is nothing to be seen"
        }
        _ if one.is_at_redis() && other.is_at_redis() => {
            "both are done to the same Redis, and one hides the other"
        }
        _ if one.stops_database() && other.stops_database() => "both stop the same database",
        _ if one.way().is_some() && one.way() == way => {
            "both are on the same way, and healing one heals the other"
        }
        _ if one.stops_redis() && way == Some(Link::Redis) => {
            "a Redis that does not do its work says nothing that could be held up or lost"
        }
        _ if one.stops_database() && way == Some(Link::Database) => {
            "a database that does not run says nothing that could be held up or lost"
        }
        _ => return None,
    })
}

impl FaultKind {
    /// Whether replicas end of it, or may.
    pub fn kills(self, schedule: &Schedule) -> bool {
        match self {
            Self::KillReplica | Self::RollingRestart | Self::Failpoint => true,
            Self::Targeted(targeted) => {
                matches!(targeted, TargetedFault::KillAtWork | TargetedFault::KillAfterSet)
            }
            Self::TwoAtOnce => schedule
                .pair
                .iter()
                .any(|one| matches!(one, Self::KillReplica | Self::RollingRestart)),
            _ => false,
        }
    }

    fn stops_replica(self) -> bool {
        let keeps_from_work = matches!(self, Self::FreezeReplica | Self::StarveReplica);
        keeps_from_work || matches!(self, Self::KillReplica | Self::RollingRestart)
    }

    fn stops_redis(self) -> bool {
        let refuses = matches!(
            self,
            Self::PauseRedis
                | Self::BusyRedis
                | Self::RedisTooFewReplicas
                | Self::RedisOutOfMemory
                | Self::RedisDiskFull
        );
        refuses || matches!(self, Self::RestartRedis | Self::FreezeRedis | Self::FailOverRedis)
    }

    fn is_at_redis(self) -> bool {
        let is_told = matches!(
            self,
            Self::FlushRedis | Self::FlushScripts | Self::EvictRedis | Self::RedisClock
        );
        is_told || self.stops_redis()
    }

    fn stops_database(self) -> bool {
        matches!(
            self,
            Self::RestartDatabase
                | Self::FreezeDatabase
                | Self::DatabaseDiskFull
                | Self::FailOverDatabase(_)
        )
    }

    /// The link that it happens on.
    fn way(self) -> Option<Link> {
        match self {
            Self::Network(_, link) => Some(link),
            Self::LoseCommit => Some(Link::Database),
            Self::LoseScript => Some(Link::Redis),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::faults::NetworkFault;

    #[test]
    fn every_pair_is_possible_or_excluded_for_a_reason_in_either_order() {
        for one in FaultKind::ALL {
            for other in FaultKind::ALL {
                assert_eq!(excluded(one, other), excluded(other, one), "{one:?} {other:?}");
            }
        }
        let cut = |link| FaultKind::Network(NetworkFault::Cut, link);
        let of = |link| FaultKind::Network(NetworkFault::Delay, link);
        assert!(excluded(cut(Link::Redis), of(Link::Redis)).is_some(), "on the same way");
        assert_eq!(excluded(cut(Link::Redis), of(Link::Database)), None);
        assert!(excluded(FaultKind::LoseCommit, of(Link::Database)).is_some());
        assert!(excluded(FaultKind::KillReplica, FaultKind::FreezeReplica).is_some());
        assert_eq!(excluded(FaultKind::KillReplica, FaultKind::LoseCommit), None);
    }

    #[test]
    fn replicas_die_of_faults_that_kill_them_alone_or_as_one_of_two() {
        let schedule = |pair| Schedule { pair, ..Schedule::of(1, "a cell", 2) };
        let calm = schedule([FaultKind::FreezeReplica, FaultKind::LoseCommit]);
        let deadly = schedule([FaultKind::LoseCommit, FaultKind::KillReplica]);
        assert!(FaultKind::KillReplica.kills(&calm) && FaultKind::RollingRestart.kills(&calm));
        assert!(FaultKind::Targeted(TargetedFault::KillAtWork).kills(&calm));
        assert!(!FaultKind::FreezeReplica.kills(&deadly));
        assert!(!FaultKind::TwoAtOnce.kills(&calm) && FaultKind::TwoAtOnce.kills(&deadly));
    }

    #[test]
    fn a_lock_has_only_pairs_of_faults_that_it_can_have_and_all_of_them_are_drawn() {
        let of = [
            (Lock::Redisson, PurchaseMode::Direct, 351),
            (Lock::SetNx, PurchaseMode::Direct, 309),
            (Lock::Zookeeper, PurchaseMode::Direct, 425),
            (Lock::None, PurchaseMode::Queued, 351),
        ];
        for (lock, mode, count) in of {
            let pairs: BTreeSet<_> = all(lock, mode).collect();
            assert_eq!(pairs.len(), count, "{lock:?}");
            let all_suit = pairs.iter().flatten().all(|fault| fault.suits(lock, mode).is_ok());
            assert!(all_suit, "{lock:?}");
        }
        let axes = (Lock::SetNx, PurchaseMode::Direct);
        let drawn: BTreeSet<_> = (0..3000).map(|number| draw(axes, number)).collect();
        assert_eq!(drawn, all(axes.0, axes.1).collect());
    }
}
