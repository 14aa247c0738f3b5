//! The acknowledgement of entries whose tickets have ended, many at a time.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::QueueContext;
use super::stream_consumer::{BATCH, FinishedEntry, GATHER_TIME, MAX_POLL_PAUSE};
use crate::domain::{TicketState, VoucherId};
use crate::failpoint::{self, reach};
use crate::sale::injected_bug::InjectedBug;
use crate::store::{EntryEnd, StoreError};

/// How often an acknowledgement without an answer is tried.
const MAX_TRIES: u32 = 20;

/// Acknowledges ended entries in batches, until their senders are dropped.
pub(super) async fn acknowledge_ended(
    context: Arc<QueueContext>,
    voucher: VoucherId,
    mut ended: mpsc::Receiver<FinishedEntry>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while ended.recv_many(&mut batch, BATCH).await > 0 {
        let gather = async {
            while let missing @ 1.. = BATCH - batch.len()
                && ended.recv_many(&mut batch, missing).await > 0
            {}
        };
        let _full_or_few = timeout(GATHER_TIME, gather).await;
        let ends: Vec<_> = batch.iter().map(|finished| finished.end.clone()).collect();
        for tries in 1..=MAX_TRIES {
            match acknowledge_batch(&context, voucher, &ends).await {
                Ok(()) => break,
                Err(error) if tries == MAX_TRIES => {
                    tracing::warn!(%error, %voucher, "ended entries not acknowledged; redelivered");
                }
                Err(_) => sleep(MAX_POLL_PAUSE).await,
            }
        }
        for EntryEnd { state, .. } in &ends {
            metrics::counter!("seckill_tickets_total", "state" => state.name()).increment(1);
        }
        reach(failpoint::QUEUE_ACKNOWLEDGED);
        batch.clear();
    }
}

async fn acknowledge_batch(
    context: &QueueContext,
    voucher: VoucherId,
    ended: &[EntryEnd],
) -> Result<(), StoreError> {
    if context.hooks.has_bug(InjectedBug::LostCompensation) {
        let (bought, others): (Vec<_>, Vec<_>) =
            ended.iter().cloned().partition(|end| matches!(end.state, TicketState::Bought(_)));
        let ids: Vec<_> = others.into_iter().map(|end| end.id).collect();
        if !ids.is_empty() {
            context.stream.drop_entries(voucher, &ids).await?;
        }
        return context.stream.acknowledge(voucher, &bought).await.map(drop);
    }
    context.stream.acknowledge(voucher, ended).await.map(drop)
}
