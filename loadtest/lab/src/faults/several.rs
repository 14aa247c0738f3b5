//! Two faults at the same time, chosen by the schedule.

use loadtest_measure::error::Result;

use super::{FaultContext, no_witness};

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
