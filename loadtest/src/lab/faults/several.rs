//! Two faults at the same time: which, the schedule says.

use super::{Scene, unseen};
use crate::error::Result;

/// Witness: both witnesses.
pub(super) async fn both(scene: &Scene<'_>) -> Result<String> {
    let [one, other] = scene.schedule.pair;
    if [one, other].contains(&super::FaultKind::TwoAtOnce) {
        return Err(unseen("two at once cannot be one of two".to_owned()));
    }
    // Boxed, because a fault of this kind would contain itself.
    let (first, second) = tokio::join!(Box::pin(one.strike(scene)), Box::pin(other.strike(scene)));
    Ok(format!("{}: {}; {}: {}", one.name(), first?, other.name(), second?))
}
