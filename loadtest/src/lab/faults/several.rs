//! Two faults at the same time: which, the schedule says.

use super::{Scene, unseen};
use crate::error::Result;

/// Witness: both witnesses.
pub(super) async fn both(scene: &Scene<'_>) -> Result<String> {
    let [one, other] = scene.schedule.pair;
    if let Some(because) = super::pairs::excluded(one, other) {
        return Err(unseen(format!("{} and {}: {because}", one.name(), other.name())));
    }
    // Boxed, because a fault of this kind would contain itself.
    let (first, second) = tokio::join!(Box::pin(one.strike(scene)), Box::pin(other.strike(scene)));
    Ok(format!("{}: {}; {}: {}", one.name(), first?, other.name(), second?))
}
