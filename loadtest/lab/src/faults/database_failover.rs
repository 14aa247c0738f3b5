//! A failover of the database to its replica, which lags.
//!
//! What the primary sends is dropped on the network until it is killed or frozen. Then the replica
//! applies what it has received and takes writes. A semi-synchronous primary answers no COMMIT
//! meanwhile, an asynchronous one does.

use std::time::Duration;

use loadtest_measure::error::Result;
use testbed::{Direction, Process, Proxy, ReplicatedDatabase, Replication};
use tokio::time::sleep;

use super::{FaultContext, no_witness, wait_until, witness};
use crate::cluster::blocking;

/// Long enough that orders are written that the replica does not receive.
const REPLICA_LAG: Duration = Duration::from_millis(300);

/// What the fault does, in a sentence without a subject.
pub(super) fn description(replication: Replication) -> &'static str {
    match replication {
        Replication::SemiSync => {
            "the database loses its primary, which answers no COMMIT that its replica has not"
        }
        Replication::Async => {
            "the database loses its primary, and with it what its replica has not received"
        }
    }
}

/// How much the replicas were sent and never received.
pub(super) fn missed_bytes(group: &ReplicatedDatabase) -> u64 {
    group.links().map(Proxy::counts).map(|counts| counts.swallowed_to_client).sum()
}

/// Ends what a server was lost by.
pub(super) fn bring_back(lost: &Process, was_frozen: bool) -> testbed::Result<()> {
    if was_frozen { lost.thaw() } else { lost.restart() }
}

/// Witness: bytes that the replica did not receive, and that another server takes writes. The old
/// primary, where it forgets what was not confirmed, comes back as a replica.
pub(super) async fn fail_over(
    context: &FaultContext<'_>,
    replication: Replication,
) -> Result<String> {
    let Some(group) = context.deployment.replicated_database().cloned() else {
        return Err(no_witness("the database has no replica to fail over to".to_owned()));
    };
    group.links().for_each(|link| link.set_swallowing(Direction::ToClient, true));
    wait_until("the replica misses something", || missed_bytes(&group) > 0).await?;
    sleep(REPLICA_LAG).await;
    let (old, missed) = (group.primary().clone(), missed_bytes(&group));
    let freezes = context.schedule.variation.is_multiple_of(2);
    let (lost, failed_over) = (old.clone(), group.clone());
    blocking(move || {
        let ended = if freezes { lost.freeze() } else { lost.kill() };
        ended?;
        let promoted = failed_over.fail_over().map(drop);
        if promoted.is_err() {
            // Without a successor it stays the primary.
            bring_back(&lost, freezes)?;
        }
        promoted
    })
    .await?;
    let new = group.primary().clone();
    let asked = new.clone();
    let takes_writes = blocking(move || asked.takes_writes()).await?;
    let text = format!(
        "{} was {}; {} takes writes now and never received {missed} bytes",
        old.name(),
        if freezes { "frozen" } else { "killed" },
        new.name()
    );
    if replication == Replication::SemiSync {
        let returned = old.clone();
        blocking(move || group.rejoin(&returned)).await?;
    } else {
        let dead = old.clone();
        blocking(move || dead.kill()).await?;
    }
    witness(takes_writes, text)
}
