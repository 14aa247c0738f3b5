//! Faults of the database server.

use loadtest_measure::error::Result;
use tokio::time::sleep;

use super::replicas::stands_still;
use super::witness::purchases_failed;
use super::{FaultContext, witness};
use crate::cluster::blocking;

/// Killed and started again on the same data. Witness: another process.
pub(super) async fn restart(context: &FaultContext<'_>) -> Result<String> {
    let database = context.deployment.database().clone();
    let before = database.pid();
    let restarted = database.clone();
    blocking(move || restarted.restart()).await?;
    let after = database.pid();
    witness(before != after, format!("the database was process {before} and is {after}"))
}

/// Stopped in its tracks. Witness: its state in /proc.
pub(super) async fn freeze(context: &FaultContext<'_>) -> Result<String> {
    let database = context.deployment.database().clone();
    let frozen = database.clone();
    blocking(move || frozen.freeze()).await?;
    let seen = stands_still("the database", database.pid(), context.schedule.lasts()).await;
    blocking(move || database.thaw()).await?;
    seen
}

/// No file gets another block, and a COMMIT, which adds to the log, waits for one. Witness: how
/// many writes failed, another process once there is space, and purchases that failed meanwhile.
pub(super) async fn fill_disk(context: &FaultContext<'_>) -> Result<String> {
    let database = context.deployment.database().clone();
    let purchases = purchases_failed(context).await?;
    let (before, full) = (database.pid(), database.clone());
    blocking(move || full.fill_disk()).await?;
    sleep(context.schedule.lasts()).await;
    let helped = database.clone();
    let failed = blocking(move || {
        let failed = helped.writes_without_space();
        helped.make_space()?;
        failed
    })
    .await?;
    let after = database.pid();
    let purchases = purchases_failed(context).await?.saturating_sub(purchases);
    let text = format!(
        "its disk refused {failed} writes; the database was process {before}, and is {after} since \
         there is space; {purchases} purchases failed meanwhile"
    );
    witness(failed > 0 && before != after && purchases > 0, text)
}
