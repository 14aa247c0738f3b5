//! A replica that is frozen while it holds the lock, after its last check of the lock and before
//! its write counts. Its COMMIT is on the way and is held back.
//!
//! In order:
//!
//! 1. A purchase of the victim has written its stock, and its COMMIT has left the replica.
//! 2. The replica is frozen, and its lock lapses.
//! 3. Another replica takes the lock, reads the stock as it was, and writes.
//! 4. The COMMIT arrives, and the replica continues.
//!
//! Where a fence keeps the next holder from reading, that holder shows its token and waits. Where
//! the lock does not lapse there is no next holder: the COMMIT arrives after a bounded time.

use std::time::{Duration, Instant};

use loadtest_judge::audit::FENCE_WRITE;
use loadtest_measure::error::Result;
use testbed::{Command, Rule};
use tokio::time::sleep;

use super::held_commit::{HeldCommit, HeldStatement, stock_write};
use super::replicas::state_of;
use super::{FaultContext, Link, no_witness, replica_name, witness};
use crate::cluster::blocking;
use crate::deployment::Deployment;

/// Longest time for another replica to take the lock and write: three leases of a second, and less
/// than the database's wait for a row.
const NEXT_WRITE_TIMEOUT: Duration = Duration::from_millis(3200);

/// How long the next holder has for a write after its token, which a fence has to prevent. One that
/// writes later has read the old stock all the same, and the judge finds what it sold.
const WRITE_AFTER_TOKEN: Duration = Duration::from_millis(500);

/// What others do while a holder stands still past its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContenderAction {
    /// The lock lapses, and another one writes.
    Write,
    /// It lapses, and another one shows its token to the fence.
    ComeToTheFence,
    /// It is the holder's transaction, so they wait for it.
    Wait,
}

impl ContenderAction {
    /// Whether these counts show it.
    fn have(self, wrote: u64, shown: u64) -> bool {
        match self {
            Self::Write => wrote > 0,
            // A writer has passed the fence.
            Self::ComeToTheFence => wrote + shown > 0,
            Self::Wait => true,
        }
    }
}

/// Witness: the victim's state in /proc with its COMMIT held, and that others did meanwhile what
/// shows that its lock had lapsed, if it can.
pub async fn freeze_the_holder(
    context: &FaultContext<'_>,
    expected: ContenderAction,
) -> Result<String> {
    let statement = HeldStatement::UnguardedCommit;
    let freeze = HolderFreeze { statement, at_least: Duration::ZERO, expected };
    freeze.of_replica(context.deployment, context.schedule.victim).await
}

/// How a holder is frozen.
pub(super) struct HolderFreeze {
    /// What of it is on the way.
    pub(super) statement: HeldStatement,
    /// How long it stands still, whatever others do.
    pub(super) at_least: Duration,
    /// What others have to do meanwhile.
    pub(super) expected: ContenderAction,
}

impl HolderFreeze {
    /// Freezes that replica while it holds the lock, until another has taken it.
    pub(super) async fn of_replica(self, deployment: &Deployment, victim: usize) -> Result<String> {
        let replica = deployment.replicas().get(victim).cloned();
        let name = replica_name(victim);
        let replica = replica.ok_or_else(|| no_witness(format!("there is no replica {name}")))?;
        let held = HeldCommit::of_statement(deployment, victim, self.statement).await?;
        let frozen = replica.clone();
        blocking(move || frozen.freeze()).await?;
        let others = (0..deployment.replicas().len()).filter(|other| *other != victim);
        let others: Vec<_> =
            others.flat_map(|other| deployment.proxies(other, Link::Database)).collect();
        let watched = |what: fn() -> Command| -> Vec<Rule> {
            others.iter().map(|proxy| proxy.watch(what())).collect()
        };
        let (writes, tokens) = (watched(stock_write), watched(|| Command::sql(FENCE_WRITE)));
        let seen = |rules: &[Rule]| rules.iter().map(Rule::matched).sum::<u64>();
        let wrote = || seen(&writes);
        sleep(self.at_least).await;
        let fenced = self.expected == ContenderAction::ComeToTheFence;
        let mut token_seen = None;
        let next = || {
            let shown = seen(&tokens);
            if shown > 0 {
                token_seen.get_or_insert_with(Instant::now);
            }
            let stood = token_seen.is_some_and(|since| since.elapsed() >= WRITE_AFTER_TOKEN);
            match self.statement {
                // Its successor shows a higher token before it writes.
                HeldStatement::Token => shown,
                _ if fenced && stood => shown,
                _ => wrote(),
            }
        };
        held.until_another_wrote(next, NEXT_WRITE_TIMEOUT).await;
        let (state, meanwhile, lasted) = (state_of(replica.pid()), wrote(), held.elapsed());
        let shown = seen(&tokens);
        // The COMMIT arrives and is answered while the replica still stands, so that no time-out
        // of its own comes first.
        let answered = held.arrive().await;
        blocking(move || replica.thaw()).await?;
        answered?;
        let what = self.statement.name();
        let text = format!(
            "{name} was in state {state} for {} ms with its {what}; {} meanwhile",
            lasted.as_millis(),
            words(meanwhile, shown)
        );
        witness(state == 'T' && self.expected.have(meanwhile, shown), text)
    }
}

/// What other replicas did.
fn words(wrote: u64, shown: u64) -> String {
    match (wrote, shown) {
        (0, 0) => "no other replica wrote".to_owned(),
        (0, 1) => "another showed its token, and no other replica wrote".to_owned(),
        (0, times) => format!("others showed {times} tokens, and no other replica wrote"),
        (1, _) => "another wrote once".to_owned(),
        (times, _) => format!("others wrote {times} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_lapsed_where_a_contender_did_what_its_scenario_expects() {
        for (expected, wrote, shown, so) in [
            (ContenderAction::Write, 1, 0, true),
            (ContenderAction::Write, 0, 3, false),
            (ContenderAction::ComeToTheFence, 0, 1, true),
            (ContenderAction::ComeToTheFence, 1, 0, true),
            (ContenderAction::ComeToTheFence, 0, 0, false),
            (ContenderAction::Wait, 0, 0, true),
        ] {
            assert_eq!(expected.have(wrote, shown), so, "{expected:?}, {wrote}, {shown}");
        }
    }
}
