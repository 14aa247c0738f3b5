//! Faults of one member of three: the two others are a majority, and choose another leader.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use loadtest_measure::error::Result;
use testbed::{Ensemble, EnsembleMember, ZooKeeperEnsemble};

use super::{FaultContext, POLL_INTERVAL, no_witness, witness};
use crate::cluster::blocking;
use crate::lock_server::LockEnsemble;

/// A leader that is cut off for longer and still leads is an error.
const STEPS_DOWN_WITHIN: Duration = Duration::from_mins(1);

/// What happens to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EnsembleFault {
    /// The leader dies or stands still, and returns.
    LeaderLost,
    /// The leader stands still, cut off from the others, until they have chosen another one. When
    /// it goes on it takes itself for the leader, and clients reach both sides.
    SplitBrain,
    /// The disk of a member is full.
    DiskFull,
}

impl EnsembleFault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LeaderLost => "leader-lost",
            Self::SplitBrain => "split-brain",
            Self::DiskFull => "member-disk-full",
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::LeaderLost => "the leader of an ensemble is lost, and another member leads",
            Self::SplitBrain => {
                "the leader of an ensemble, cut off, stands still until another one leads"
            }
            Self::DiskFull => "the disk of an ensemble's member is full, until an operator helps",
        }
    }

    /// Witness: which member led before and which one after, and that the former follows then. Of a
    /// full disk also how many writes it refused; of a split, for how long both said that they led.
    pub(super) async fn inject(self, context: &FaultContext<'_>) -> Result<String> {
        let Some(ensemble) = context.deployment.ensemble().cloned() else {
            return Err(no_witness("its lock lives on no ensemble".to_owned()));
        };
        let (lasts, kills) =
            (context.schedule.lasts(), context.schedule.variation.is_multiple_of(2));
        let is_full = self == Self::DiskFull;
        match ensemble {
            LockEnsemble::ZooKeeper(all) if is_full => {
                let (refused, text) = blocking(move || fill_a_disk(&all, lasts, kills)).await?;
                witness(refused > 0, text)
            }
            LockEnsemble::Etcd(_) if is_full => {
                Err(no_witness("the disk of an etcd cannot be filled".to_owned()))
            }
            LockEnsemble::ZooKeeper(all) => {
                blocking(move || self.happen_to_leader(&all, lasts, kills)).await
            }
            LockEnsemble::Etcd(all) => {
                blocking(move || self.happen_to_leader(&all, lasts, kills)).await
            }
        }
    }

    fn happen_to_leader<M: EnsembleMember + Sync>(
        self,
        ensemble: &Arc<Ensemble<M>>,
        lasts: Duration,
        kills: bool,
    ) -> testbed::Result<String> {
        if self == Self::LeaderLost {
            lose_the_leader(ensemble, lasts, kills)
        } else {
            split(ensemble, lasts)
        }
    }
}

/// How many writes failed, and the witness, once the member follows. Each hold of a lock is
/// written.
fn fill_a_disk(
    ensemble: &ZooKeeperEnsemble,
    lasts: Duration,
    of_leader: bool,
) -> testbed::Result<(i64, String)> {
    let leader = ensemble.leader()?;
    let full = if of_leader { leader } else { (leader + 1) % ensemble.members().len() };
    let (member, began) = (&ensemble.members()[full], Instant::now());
    member.fill_disk()?;
    // There is space again also if it continued to serve.
    let ended = ensemble.await_end_of_service(full);
    let leads = ensemble.successor(full);
    let refused = member.writes_without_space();
    sleep(lasts.saturating_sub(began.elapsed()));
    member.make_space()?;
    let ((), leads, refused) = (ended?, leads?, refused?);
    ensemble.await_follower(full)?;
    let was = if of_leader { "led" } else { "followed" };
    let text = format!(
        "member {} {was}, its disk refused {refused} writes, and it served no more; member {} \
         leads, and it follows",
        full + 1,
        leads + 1
    );
    Ok((refused, text))
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

/// A leader that runs while it is cut off steps down before the others have chosen, as a rule. One
/// that stood still has noticed nothing: two lead when it goes on, if only for a moment.
fn split<M: EnsembleMember + Sync>(
    ensemble: &Ensemble<M>,
    lasts: Duration,
) -> testbed::Result<String> {
    let former = ensemble.leader()?;
    let (member, began) = (&ensemble.members()[former], Instant::now());
    member.freeze()?;
    ensemble.cut_off(former);
    let leader = ensemble.successor(former);
    let both_led = lead_both(member);
    let ended = ensemble.await_end_of_service(former);
    sleep(lasts.saturating_sub(began.elapsed()));
    ensemble.join_again(former);
    let (leader, both, ()) = (leader?, both_led?, ended?);
    let both = match both {
        Some(time) => format!("both said so for {} ms", time.as_millis()),
        None => "the former stepped down before it answered".to_owned(),
    };
    let what = format!("was cut off while it stood still; member {} leads, {both}", leader + 1);
    await_return(ensemble, former, &what)
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

/// Has a former leader go on, and says for how long it still said that it led.
fn lead_both<M: EnsembleMember + Sync>(member: &M) -> testbed::Result<Option<Duration>> {
    thread::scope(|scope| {
        // Asked while it stands still, so that it answers as soon as it goes on.
        let first = scope.spawn(|| member.leads());
        sleep(POLL_INTERVAL);
        member.thaw()?;
        let (began, mut said) = (Instant::now(), None);
        let mut leads = first.join().unwrap_or_else(|panic| resume_unwind(panic));
        while leads && began.elapsed() < STEPS_DOWN_WITHIN {
            said = Some(began.elapsed());
            sleep(POLL_INTERVAL);
            leads = member.leads();
        }
        Ok(said)
    })
}
