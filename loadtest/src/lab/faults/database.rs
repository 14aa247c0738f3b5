//! What happens to the database server.

use super::replicas::stands_still;
use super::{Scene, witness};
use crate::error::Result;
use crate::lab::cluster::blocking;

/// Killed and started again on the same data. Witness: another process.
pub(super) async fn restart(scene: &Scene<'_>) -> Result<String> {
    let database = scene.deployment.database().clone();
    let before = database.pid();
    let restarted = database.clone();
    blocking(move || restarted.restart()).await?;
    let after = database.pid();
    witness(before != after, format!("the database was process {before} and is {after}"))
}

/// Stopped in its tracks. Witness: its state in /proc.
pub(super) async fn freeze(scene: &Scene<'_>) -> Result<String> {
    let database = scene.deployment.database().clone();
    let frozen = database.clone();
    blocking(move || frozen.freeze()).await?;
    let seen = stands_still("the database", database.pid(), scene.schedule.lasts()).await;
    blocking(move || database.thaw()).await?;
    seen
}
