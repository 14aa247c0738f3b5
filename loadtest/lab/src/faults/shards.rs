//! Faults of the shards that the vouchers lie on.

use loadtest_measure::error::Result;

use super::witness::purchases_failed;
use super::{FaultContext, no_witness, witness};
use crate::cluster::blocking;

/// The shard of the voucher is killed, and started again on the same data after a while. Witness:
/// another process, and purchases that failed meanwhile: each needs the shard.
pub(super) async fn lose(context: &FaultContext<'_>) -> Result<String> {
    let Some(group) = context.deployment.shards() else {
        return Err(no_witness("its database has no shards".to_owned()));
    };
    let (shards, voucher) = (group.shards(), context.stock_admin.voucher());
    let number = usize::try_from(voucher).unwrap_or(0) % shards.len();
    let (shard, lasts) = (shards[number].clone(), context.schedule.lasts());
    let failed_before = purchases_failed(context).await?;
    let (before, lost) = (shard.pid(), shard.clone());
    blocking(move || {
        lost.kill()?;
        std::thread::sleep(lasts);
        lost.restart()
    })
    .await?;
    let (after, failed) =
        (shard.pid(), purchases_failed(context).await?.saturating_sub(failed_before));
    let text = format!(
        "shard{number}, which has voucher {voucher}, was {before} and is {after}; {failed} \
         purchases failed meanwhile"
    );
    witness(before != after && failed > 0, text)
}
