//! What was seen of a fault, or that it was not.

use std::net::SocketAddr;
use std::time::Duration;

use loadtest_measure::error::{Error, Result};

use super::FaultContext;
use crate::metrics;

/// How often a state that is awaited is looked at.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long a state may take until it is seen.
pub(super) const WITNESS_TIMEOUT: Duration = Duration::from_secs(8);

/// Polls a state until it is reached; an error after [`WITNESS_TIMEOUT`].
pub(super) async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let deadline = tokio::time::Instant::now() + WITNESS_TIMEOUT;
    while !is_so() {
        if tokio::time::Instant::now() >= deadline {
            return Err(no_witness(format!("not seen within {WITNESS_TIMEOUT:?}: {what}")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// The witness, unless the fault did not happen.
pub(super) fn witness(happened: bool, text: String) -> Result<String> {
    if happened { Ok(text) } else { Err(no_witness(format!("no witness: {text}"))) }
}

pub(super) fn no_witness(text: String) -> Error {
    Error::Setup(text)
}

/// Purchases that a server has failed so far, as the replicas count them.
pub(super) async fn purchases_failed(context: &FaultContext<'_>) -> Result<u64> {
    told(metrics::purchases_failed(&addresses(context)).await)
}

/// Purchases that were begun and have not ended, as the replicas count them.
pub(super) async fn purchases_in_progress(context: &FaultContext<'_>) -> Result<u64> {
    told(metrics::purchases_in_progress(&addresses(context)).await)
}

fn addresses(context: &FaultContext<'_>) -> Vec<SocketAddr> {
    context.deployment.replicas().iter().map(|replica| replica.addr()).collect()
}

fn told(count: Option<u64>) -> Result<u64> {
    count.ok_or_else(|| no_witness("a replica does not tell of its purchases".to_owned()))
}
