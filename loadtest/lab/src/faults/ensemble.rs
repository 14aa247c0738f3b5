//! Faults of one member of three: the two others are a majority, and choose another leader.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use loadtest_measure::error::Result;
use testbed::{Ensemble, EnsembleMember};

use super::{FaultContext, POLL_INTERVAL, no_witness};
use crate::cluster::blocking;
use crate::lock_server::LockEnsemble;

/// A leader that is cut off for longer and still leads is an error.
const STEPS_DOWN_WITHIN: Duration = Duration::from_mins(1);

/// What happens to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EnsembleFault {
    /// The leader dies or stands still, and returns.
    LeaderLost,
    /// The leader is cut off from the others, which choose another one. Clients reach both sides.
    SplitBrain,
}

impl EnsembleFault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LeaderLost => "leader-lost",
            Self::SplitBrain => "split-brain",
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::LeaderLost => "the leader of an ensemble is lost, and another member leads",
            Self::SplitBrain => {
                "the leader of an ensemble is cut off from the others, and clients reach both sides"
            }
        }
    }

    /// Witness: which member led before and which one after, and that the former follows then.
    pub(super) async fn inject(self, context: &FaultContext<'_>) -> Result<String> {
        let Some(ensemble) = context.deployment.ensemble().cloned() else {
            return Err(no_witness("its lock lives on no ensemble".to_owned()));
        };
        let (lasts, kills) =
            (context.schedule.lasts(), context.schedule.variation.is_multiple_of(2));
        blocking(move || match ensemble {
            LockEnsemble::ZooKeeper(all) => self.happen_to(&all, lasts, kills),
            LockEnsemble::Etcd(all) => self.happen_to(&all, lasts, kills),
        })
        .await
    }

    fn happen_to<M: EnsembleMember>(
        self,
        ensemble: &Arc<Ensemble<M>>,
        lasts: Duration,
        kills: bool,
    ) -> testbed::Result<String> {
        match self {
            Self::LeaderLost => lose_the_leader(ensemble, lasts, kills),
            Self::SplitBrain => cut_the_leader_off(ensemble, lasts),
        }
    }
}

fn lose_the_leader<M: EnsembleMember>(
    ensemble: &Ensemble<M>,
    lasts: Duration,
    kills: bool,
) -> testbed::Result<String> {
    let former = ensemble.leader()?;
    let (member, began) = (&ensemble.members()[former], Instant::now());
    if kills {
        member.kill()?;
    } else {
        member.freeze()?;
    }
    // The member returns also if no other has come to lead.
    let leader = ensemble.successor(former);
    sleep(lasts.saturating_sub(began.elapsed()));
    if kills {
        member.restart()?;
    } else {
        member.thaw()?;
    }
    let (lost, leader) = (if kills { "killed" } else { "frozen" }, leader?);
    await_return(ensemble, former, &format!("was {lost}; member {} leads", leader + 1))
}

fn cut_the_leader_off<M: EnsembleMember>(
    ensemble: &Ensemble<M>,
    lasts: Duration,
) -> testbed::Result<String> {
    let former = ensemble.leader()?;
    let began = Instant::now();
    ensemble.cut_off(former);
    let seen = split(ensemble, former);
    sleep(lasts.saturating_sub(began.elapsed()));
    ensemble.join_again(former);
    let (leader, both_led) = seen?;
    let both = if both_led.is_zero() {
        "the former had stepped down before".to_owned()
    } else {
        format!("both said so for {} ms", both_led.as_millis())
    };
    await_return(ensemble, former, &format!("was cut off; member {} leads, {both}", leader + 1))
}

/// The witness, once the former leader follows.
fn await_return<M: EnsembleMember>(
    ensemble: &Ensemble<M>,
    former: usize,
    what: &str,
) -> testbed::Result<String> {
    ensemble.await_follower(former)?;
    Ok(format!("member {} led and {what}, and the former follows", former + 1))
}

/// The leader of the majority, and for how long the one that is cut off still said that it led.
fn split<M: EnsembleMember>(
    ensemble: &Ensemble<M>,
    former: usize,
) -> testbed::Result<(usize, Duration)> {
    let leader = ensemble.successor(former)?;
    let (began, mut last) = (Instant::now(), Duration::ZERO);
    while ensemble.members()[former].leads() && began.elapsed() < STEPS_DOWN_WITHIN {
        last = began.elapsed();
        sleep(POLL_INTERVAL);
    }
    ensemble.await_end_of_service(former)?;
    Ok((leader, last))
}
