//! Purchases of another voucher before a load with a fault, where JVMs take part. One that has just
//! started loads its classes and compiles its code under the load, and is too slow for it.
//!
//! Each replica sells slices of the same size. It is warm when a slice is hardly quicker than the
//! quickest before it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use loadtest_load::client::Target;
use loadtest_load::drive;
use loadtest_load::history_file::HistoryFile;
use loadtest_load::live::LiveFigures;
use loadtest_load::plan::Plan;
use loadtest_load::tokens::User;
use loadtest_measure::error::Result;

use crate::sale::Sale;

/// Purchases in a slice.
const SLICE: usize = 200;
/// Purchases at a time.
const CONNECTIONS: usize = 4;
/// A replica is warm if a slice takes at least this share of the quickest time before it.
const WARM_SHARE: f64 = 0.9;
/// How long it may take: a busy machine may have no two equal slices.
const MAX_DURATION: Duration = Duration::from_secs(40);

/// Warms up the replicas of a sale if some of them are JVMs.
pub(super) async fn warm_up(sale: &Sale<'_>) -> Result<()> {
    if !sale.load.fleet.has_jvms() {
        return Ok(());
    }
    let voucher = sale.put_another_on_sale(sale.users.len() as u64).await?;
    let replicas = sale.deployment.replicas();
    let shares = sale.users.chunks(sale.users.len() / replicas.len());
    let each = replicas.iter().zip(shares).map(|(replica, users)| async move {
        warm_one(sale, &Target::parse(replica.base_url())?, (voucher, users)).await
    });
    try_join_all(each).await.map(drop)
}

async fn warm_one(
    sale: &Sale<'_>,
    target: &Arc<Target>,
    (voucher, users): (u64, &[User]),
) -> Result<()> {
    let began = Instant::now();
    let mut seconds = Vec::new();
    for users in users.chunks_exact(SLICE) {
        let plan = Plan {
            vouchers: vec![voucher],
            connections: CONNECTIONS,
            ..sale.plan(users, target.clone(), 1)
        };
        let connections = drive::connect(&plan).await?;
        let recorded = HistoryFile::begin(&plan, None, &[None])?;
        let live = Arc::new(LiveFigures::new(&plan));
        let figures = drive::run(&plan, connections, recorded.recorder(), &live).await?;
        recorded.recorder().flush().await;
        if is_warm(&seconds, figures.elapsed_s) || began.elapsed() > MAX_DURATION {
            break;
        }
        seconds.push(figures.elapsed_s);
    }
    Ok(())
}

/// Whether a slice that took so long is hardly quicker than all before it.
fn is_warm(before: &[f64], took: f64) -> bool {
    before.iter().any(|earlier| took >= earlier * WARM_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_warm_once_a_slice_is_hardly_quicker_than_one_before() {
        assert!(!is_warm(&[], 3.0), "the first slice has none before it");
        assert!(!is_warm(&[3.0, 1.5], 1.2), "it still becomes quicker");
        assert!(is_warm(&[3.0, 1.5, 1.2], 1.15));
        assert!(is_warm(&[3.0, 1.5], 2.0), "it was slower for another reason");
    }
}
