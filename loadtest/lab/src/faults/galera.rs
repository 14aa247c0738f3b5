//! Faults of the nodes of Galera, all of which take writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use loadtest_measure::error::Result;
use testbed::Database;
use tokio::time::sleep;

use super::{FaultContext, no_witness, witness};
use crate::cluster::blocking;

/// Changes the stock of all vouchers and changes it back, in one transaction. The stock stays what
/// it is, and a transaction of another node that has the row is rolled back.
const REWRITE_STOCK: &str = "BEGIN NOT ATOMIC \
    START TRANSACTION; \
    UPDATE voucher_stock SET stock = stock + 1; \
    UPDATE voucher_stock SET stock = stock - 1; \
    COMMIT; \
    END";
/// Between two of them, so that purchases get their turn.
const PAUSE: Duration = Duration::from_millis(2);

/// A session of the laboratory writes the row of the stock on the last node. Witness: transactions
/// that the other nodes have rolled back for one of another node, more than in as long a time
/// before. They are of purchases: nothing else writes the row there.
pub(super) async fn conflict(context: &FaultContext<'_>) -> Result<String> {
    let Some(nodes) = context.deployment.galera().cloned() else {
        return Err(no_witness("its database has no nodes".to_owned()));
    };
    let (name, lasts) = (context.deployment.database_name(), context.schedule.lasts());
    let [others @ .., last] = &*nodes;
    let at_first = rolled_back(others).await?;
    sleep(lasts).await;
    let before = rolled_back(others).await?;
    let usual = before.saturating_sub(at_first);
    let (node, name) = (last.clone(), name.to_owned());
    let written = blocking(move || Ok(rewrite(&node, &name, lasts))).await?;
    let aborted = rolled_back(others).await?.saturating_sub(before);
    let text = format!(
        "{written} transactions of the laboratory wrote the row on {}; on the other nodes \
         {aborted} of purchases were rolled back for one of another node, and {usual} in as long a \
         time before",
        last.name()
    );
    witness(written > 0 && aborted > usual, text)
}

/// A node is stopped, and joins again after a while. Witness: transactions that it missed, and that
/// it has them.
pub(super) async fn leave(context: &FaultContext<'_>) -> Result<String> {
    let Some(nodes) = context.deployment.galera().cloned() else {
        return Err(no_witness("its database has no nodes".to_owned()));
    };
    let leaves = usize::from(context.schedule.variation.is_multiple_of(2));
    let (node, other) = (nodes[leaves].clone(), nodes[1 - leaves].clone());
    let (names, lasts) =
        ([node.name().to_owned(), other.name().to_owned()], context.schedule.lasts());
    let (missed, has) = blocking(move || {
        node.leave()?;
        let before = other.last_committed();
        std::thread::sleep(lasts);
        let after = other.last_committed();
        node.join_again()?;
        let (after, has) = (after?, node.last_committed()?);
        Ok((after.saturating_sub(before?), has >= after))
    })
    .await?;
    let [node, other] = names;
    let text = format!(
        "{node} was stopped and missed {missed} transactions of {other}; it joined again and has \
         them"
    );
    witness(missed > 0 && has, text)
}

async fn rolled_back(nodes: &[Arc<Database>]) -> Result<u64> {
    let nodes = nodes.to_vec();
    blocking(move || nodes.iter().map(|node| node.rolled_back_for_others()).sum()).await
}

/// How many of its transactions were committed.
fn rewrite(node: &Database, name: &str, lasts: Duration) -> u64 {
    let began = Instant::now();
    let mut written = 0;
    while began.elapsed() < lasts {
        // It may be the one that is rolled back.
        written += u64::from(node.execute_in(name, REWRITE_STOCK).is_ok());
        std::thread::sleep(PAUSE);
    }
    written
}
