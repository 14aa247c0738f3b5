//! Faults of the database server.

use loadtest_measure::error::Result;
use tokio::time::sleep;

use super::replicas::stands_still;
use super::witness::purchases_in_progress;
use super::{FaultContext, witness};
use crate::cell_axes::PurchaseMode;
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
/// many writes failed, another process once there is space, and in the direct mode purchases that
/// had not ended.
pub(super) async fn fill_disk(context: &FaultContext<'_>) -> Result<String> {
    let database = context.deployment.database().clone();
    let (before, full) = (database.pid(), database.clone());
    blocking(move || full.fill_disk()).await?;
    sleep(context.schedule.lasts()).await;
    // An error must not leave the disk full.
    let waiting = purchases_in_progress(context).await;
    let helped = database.clone();
    let failed = blocking(move || {
        let failed = helped.writes_without_space();
        helped.make_space()?;
        failed
    })
    .await?;
    let after = database.pid();
    let waiting = waiting?;
    let text = format!(
        "its disk refused {failed} writes; the database was process {before}, and is {after} since \
         there is space; {waiting} purchases waited for it"
    );
    let has_waited = waiting > 0 || context.mode == PurchaseMode::Queued;
    witness(failed > 0 && before != after && has_waited, text)
}
