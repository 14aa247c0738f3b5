//! Faults of a primary of the database and its replica, besides the loss of the primary.

use std::time::Duration;

use loadtest_measure::error::Result;
use testbed::{Database, ReplicatedDatabase};
use tokio::time::sleep;

use super::database_failover::bring_back;
use super::{FaultContext, no_witness, witness};
use crate::cluster::blocking;

/// What happens to the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PairFault {
    /// The replica receives all and applies nothing.
    ReplicaLags,
    /// A primary that stood still returns after a failover, and still takes writes.
    OldPrimaryReturns,
}

impl PairFault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ReplicaLags => "replica-lags",
            Self::OldPrimaryReturns => "old-primary-returns",
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::ReplicaLags => {
                "the replica of the database receives all that is written and applies nothing"
            }
            Self::OldPrimaryReturns => {
                "the old primary of the database returns after a failover and takes writes"
            }
        }
    }

    pub(super) async fn inject(self, context: &FaultContext<'_>) -> Result<String> {
        let Some(group) = context.deployment.replicated_database().cloned() else {
            return Err(no_witness("the database has no replica".to_owned()));
        };
        let lasts = context.schedule.lasts();
        match self {
            Self::ReplicaLags => let_the_replica_lag(&group, lasts).await,
            Self::OldPrimaryReturns => bring_the_old_primary_back(&group, lasts).await,
        }
    }
}

/// Witness: transactions that the replica had received and not applied, and that it caught up.
async fn let_the_replica_lag(group: &ReplicatedDatabase, lasts: Duration) -> Result<String> {
    let primary = group.primary().addr();
    let replica = group.servers().iter().find(|server| server.addr() != primary).cloned();
    let Some(replica) = replica else {
        return Err(no_witness("the database has no replica".to_owned()));
    };
    on(&replica, |replica| replica.set_applying(false)).await?;
    sleep(lasts).await;
    let behind = on(&replica, |replica| {
        let behind = replica.transactions_behind();
        // It is not to lag because it was not asked.
        replica.set_applying(true)?;
        behind
    })
    .await?;
    on(&replica, Database::catch_up).await?;
    let text = format!("the replica had not applied {behind} transactions, and caught up");
    witness(behind > 0, text)
}

/// Witness: that two servers take writes. A semi-synchronous one answers no COMMIT: nothing
/// confirms it. It becomes a replica then.
async fn bring_the_old_primary_back(
    group: &std::sync::Arc<ReplicatedDatabase>,
    lasts: Duration,
) -> Result<String> {
    let (old, failed_over) = (group.primary().clone(), group.clone());
    let lost = old.clone();
    blocking(move || {
        lost.freeze()?;
        let promoted = failed_over.fail_over().map(drop);
        if promoted.is_err() {
            bring_back(&lost, true)?;
        }
        promoted
    })
    .await?;
    sleep(lasts).await;
    on(&old, |old| old.thaw()).await?;
    sleep(lasts).await;
    let new = group.primary().clone();
    let both = [on(&old, Database::takes_writes).await?, on(&new, Database::takes_writes).await?];
    let (returned, rejoined) = (old.clone(), group.clone());
    blocking(move || rejoined.rejoin(&returned)).await?;
    let text = format!(
        "{} was frozen and returned; it took writes beside {}, the new primary, and follows it now",
        old.name(),
        new.name()
    );
    witness(both == [true, true], text)
}

async fn on<T: Send + 'static>(
    server: &std::sync::Arc<Database>,
    act: impl FnOnce(&Database) -> testbed::Result<T> + Send + 'static,
) -> Result<T> {
    let server = server.clone();
    blocking(move || act(&server)).await
}
