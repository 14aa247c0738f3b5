//! Two faults at the same time, chosen by the schedule; and three, always the same.

use loadtest_measure::error::{Error, Result};

use testbed::Replication;

use super::database_failover::missed_bytes;
use super::ensemble::EnsembleFault;
use super::{FaultContext, FaultKind, SentinelFault, TopologyFault, no_witness, wait_until};

/// Witness: both witnesses.
pub(super) async fn both(context: &FaultContext<'_>) -> Result<String> {
    let [one, other] = context.schedule.pair;
    if let Some(because) = super::pairs::excluded(one, other) {
        return Err(no_witness(format!("{} and {}: {because}", one.name(), other.name())));
    }
    // Boxed, because a fault of this kind would contain itself.
    let (first, second) =
        tokio::join!(Box::pin(one.inject(context)), Box::pin(other.inject(context)));
    Ok(format!("{}: {}; {}: {}", one.name(), first?, other.name(), second?))
}

/// Each of the three servers that a purchase needs is lost. The fault of the database begins first:
/// without Redis no purchase writes what the replica of the database could miss. Witness: all three
/// witnesses.
pub(super) async fn three(context: &FaultContext<'_>) -> Result<String> {
    let faults = [
        FaultKind::Sentinel(SentinelFault::MasterLost),
        FaultKind::FailOverDatabase(Replication::SemiSync),
        FaultKind::OnTopology(TopologyFault::Ensemble(EnsembleFault::LeaderLost)),
    ];
    let [redis, database, ensemble] = faults.map(|fault| Box::pin(fault.inject(context)));
    let Some(group) = context.deployment.replicated_database() else {
        return Err(no_witness("the database has no replica".to_owned()));
    };
    let others = async {
        wait_until("the database's replica misses something", || missed_bytes(group) > 0).await?;
        let (redis, ensemble) = tokio::join!(redis, ensemble);
        Ok::<_, Error>((redis?, ensemble?))
    };
    let (database, others) = tokio::join!(database, others);
    let (database, (redis, ensemble)) = (database?, others?);
    let seen = [redis, database, ensemble];
    let named = faults.iter().zip(seen).map(|(fault, seen)| format!("{}: {seen}", fault.name()));
    Ok(named.collect::<Vec<_>>().join("; "))
}
