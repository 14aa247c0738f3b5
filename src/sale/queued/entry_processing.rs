//! One entry of a stream, to the end of its ticket.
//!
//! An entry is written in a batch with others. A redelivered entry, or one that failed in a batch,
//! is tried alone, so that it does not delay others: up to 4 at a time.
//!
//! A batch that meets a locked row is killed after 0.3 s, and each of its orders is tried alone. An
//! order that meets a locked row alone is tried again, apart from all others and for at most 0.4 s.
//! It blocks users whose ids are next to its own. So no other order is delayed by more than a
//! second. (The voucher's rows in `voucher_stock` and `sale_epochs` are shared by all its orders: a
//! lock on those delays all of them.)
//!
//! - The order is committed, or the ticket has ended before: that is its end.
//! - The user has an order, or nothing is left: an end without an order is written.
//! - The database is down or overloaded: the entry is tried again for a minute, then an end without
//!   an order is written. Meanwhile a replica whose database answers may claim the entry.
//! - A defect, of ours or of the entry: it stays in the stream and is redelivered after three
//!   seconds. After five tries it is a dead letter.
//! - The process dies of it: likewise.
//!
//! Tries are counted, not deliveries: a late answer, a restart and a claim redeliver an entry as
//! well. A try counts when it has ended in a defect. A redelivered entry's try is counted before it
//! is made, and uncounted if it ends otherwise.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::QueueContext;
use crate::domain::{Operation, TicketState};
use crate::failpoint::{self, reach};
use crate::sale::attempt::PurchaseAttempt;
use crate::sale::batch_writer::BatchResult;
use crate::sale::outcome::{Outcome, Refusal};
use crate::sale::retry::jitter;
use crate::store::{AdmittedTicket, QueuedOrder, StoreError};

/// The number of defects that makes an entry a dead letter.
const MAX_ENTRY_TRIES: u32 = 5;
/// How long an entry is tried without a redelivery.
const RETRY_TIME: Duration = Duration::from_mins(1);
/// The first pause between two tries.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two tries.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long the INSERT of a batch may take: a longer one waits for a locked row.
///
/// On a machine that is slower than this, it costs more transactions and nothing else.
const BATCH_LOCK_WAIT: Duration = Duration::from_millis(300);
/// How long the first INSERT of an order alone may take.
const FIRST_LOCK_WAIT: Duration = Duration::from_millis(100);
/// The longest INSERT of an order alone: its neighbours in the unique key wait behind it.
const MAX_LOCK_WAIT: Duration = Duration::from_millis(400);

/// How an order is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    /// In a batch.
    Together,
    /// By itself; the number of its lock wait aborts.
    Alone(u32),
}

impl WriteMode {
    fn lock_wait_budget(self) -> Duration {
        match self {
            Self::Together => BATCH_LOCK_WAIT,
            Self::Alone(lock_wait_aborts) => {
                (FIRST_LOCK_WAIT * 2_u32.pow(lock_wait_aborts.min(8))).min(MAX_LOCK_WAIT)
            }
        }
    }
}

/// How a try ended.
enum TryOutcome {
    /// The ticket has ended in that state.
    Ended(TicketState),
    /// The ticket must be ended in that state.
    End(TicketState),
    /// The ticket is of an earlier epoch.
    Stale,
    /// Another try may succeed.
    Retry,
    /// A row is locked; another try, alone, may succeed.
    LockWaitAborted,
    /// It failed by itself, or with others.
    Defect,
    /// It was not tried: its tries are used up.
    TriesExceeded,
}

impl QueueContext {
    /// Ends the entry's ticket; its state, or `None` if the entry has to be redelivered.
    ///
    /// A redelivered entry is suspect until a try has returned: it may have ended the process.
    pub(super) async fn finish_entry(
        &self,
        id: &str,
        order: &QueuedOrder,
        mut suspect: bool,
    ) -> Option<TicketState> {
        let deadline = Instant::now() + RETRY_TIME;
        let mut mode = if suspect { WriteMode::Alone(0) } else { WriteMode::Together };
        let mut pause = MIN_RETRY_PAUSE;
        loop {
            let (next, counted) = self.try_to_write(id, order, mode, suspect).await;
            suspect = false;
            match next {
                TryOutcome::Ended(state) => return Some(state),
                TryOutcome::End(state) => return self.end(order, state, deadline).await,
                TryOutcome::Stale => {
                    metrics::counter!("seckill_queue_stale_total").increment(1);
                    if let Err(error) = self.reopen(order.ticket.voucher()).await {
                        tracing::debug!(%error, "queue not reopened; the entry is redelivered");
                    }
                    return None;
                }
                TryOutcome::Defect if mode == WriteMode::Together => {}
                TryOutcome::Defect => {
                    let tries = match counted {
                        None => self.count_try(id, order, 1).await,
                        counted => counted,
                    };
                    if tries.is_none_or(|tries| tries < MAX_ENTRY_TRIES) {
                        return None;
                    }
                    return self.dead_letter(order, "defect", deadline).await;
                }
                TryOutcome::TriesExceeded => {
                    return self.dead_letter(order, "tried too often", deadline).await;
                }
                TryOutcome::LockWaitAborted if mode == WriteMode::Together => {
                    count_lock_wait_abort("batch");
                }
                TryOutcome::Retry | TryOutcome::LockWaitAborted if self.end.is_cancelled() => {
                    return None;
                }
                next @ (TryOutcome::Retry | TryOutcome::LockWaitAborted)
                    if Instant::now() < deadline =>
                {
                    if let (TryOutcome::LockWaitAborted, WriteMode::Alone(lock_wait_aborts)) =
                        (next, mode)
                    {
                        count_lock_wait_abort("alone");
                        mode = WriteMode::Alone(lock_wait_aborts + 1);
                    }
                    // Out of step with others that met the same locked row.
                    sleep(pause + jitter(5)).await;
                    pause = (pause * 2).min(MAX_RETRY_PAUSE);
                }
                TryOutcome::Retry | TryOutcome::LockWaitAborted => {
                    let deadline = Instant::now() + RETRY_TIME;
                    return self.end(order, TicketState::Refused, deadline).await;
                }
            }
            if mode == WriteMode::Together {
                mode = WriteMode::Alone(0);
            }
        }
    }

    /// Tries once; and the number of counted tries, if this is one of them.
    ///
    /// A suspect's try is counted before it is made, and uncounted if it returns without a defect.
    async fn try_to_write(
        &self,
        id: &str,
        order: &QueuedOrder,
        mode: WriteMode,
        suspect: bool,
    ) -> (TryOutcome, Option<u32>) {
        let attempt = match self.prepare_attempt(order, mode).await {
            Ok(attempt) => attempt,
            Err(next) => return (next, None),
        };
        let places = match mode {
            WriteMode::Together => {
                return (try_outcome(self.batch_writer.write_queued(&attempt, false).await), None);
            }
            WriteMode::Alone(0) => &self.alone,
            WriteMode::Alone(_) => &self.after_lock_wait,
        };
        let Ok(_place) = places.acquire().await else { return (TryOutcome::Retry, None) };
        if !suspect {
            return (try_outcome(self.batch_writer.write_queued(&attempt, true).await), None);
        }
        let counted = self.count_try(id, order, 1).await;
        if counted.is_some_and(|tries| tries > MAX_ENTRY_TRIES) {
            return (TryOutcome::TriesExceeded, counted);
        }
        let next = try_outcome(self.batch_writer.write_queued(&attempt, true).await);
        if !matches!(next, TryOutcome::Ended(_) | TryOutcome::Defect) {
            self.count_try(id, order, -1).await;
        }
        (next, counted)
    }

    /// Adds to the counted tries; their number, if Redis answers. The try is made in any case.
    async fn count_try(&self, id: &str, order: &QueuedOrder, by: i8) -> Option<u32> {
        let counted = self.stream.count_try(order.ticket.voucher(), id, by).await;
        counted.inspect_err(|error| tracing::debug!(%error, "try not counted")).ok()
    }

    /// Whether the database is not known to be down.
    pub(super) fn can_write(&self) -> bool {
        self.health.down().all(|server| server != "database")
    }

    /// The attempt that writes an entry's order, or why there is none now.
    async fn prepare_attempt(
        &self,
        order: &QueuedOrder,
        mode: WriteMode,
    ) -> Result<Arc<PurchaseAttempt>, TryOutcome> {
        if !self.can_write() {
            return Err(TryOutcome::Retry);
        }
        let voucher = order.ticket.voucher();
        let terms = match self.voucher_cache.terms(voucher).await {
            Ok(Some(terms)) => terms,
            Ok(None) => return Err(TryOutcome::End(TicketState::Refused)),
            Err(_) => return Err(TryOutcome::Retry),
        };
        Ok(Arc::new(PurchaseAttempt {
            user: order.user,
            voucher,
            terms: terms.at_price(order.price_cents),
            created_at: order.at,
            key: order.key,
            operation: Operation::Purchase { voucher, price_cents: Some(order.price_cents) },
            admitted: Some(AdmittedTicket {
                ticket: order.ticket,
                epoch: order.epoch,
                lock_wait_budget: mode.lock_wait_budget(),
            }),
            hold_times: None,
        }))
    }

    /// Ends the ticket without an order, unless it has ended; its state.
    async fn end(
        &self,
        order: &QueuedOrder,
        state: TicketState,
        deadline: Instant,
    ) -> Option<TicketState> {
        retry_until(deadline, || self.tickets.end(order.ticket, order.user, state)).await
    }

    /// Ends the ticket as a dead letter, unless it has ended; its state.
    async fn dead_letter(
        &self,
        order: &QueuedOrder,
        reason: &'static str,
        deadline: Instant,
    ) -> Option<TicketState> {
        tracing::error!(ticket = %order.ticket, reason, "entry not written; dead letter");
        let QueuedOrder { ticket, user, price_cents, .. } = *order;
        retry_until(deadline, || self.tickets.dead_letter(ticket, user, price_cents, reason)).await
    }
}

/// Calls the database until it answers or the deadline has passed.
async fn retry_until<F>(deadline: Instant, ask: impl Fn() -> F) -> Option<TicketState>
where
    F: Future<Output = Result<TicketState, StoreError>>,
{
    loop {
        match ask().await {
            Ok(state) => {
                reach(failpoint::QUEUE_END_WRITTEN);
                return Some(state);
            }
            Err(error) if Instant::now() > deadline => {
                tracing::warn!(%error, "ticket not ended; its entry is redelivered");
                return None;
            }
            Err(_) => sleep(MAX_RETRY_PAUSE).await,
        }
    }
}

fn count_lock_wait_abort(mode: &'static str) {
    metrics::counter!("seckill_queue_lock_wait_aborts_total", "mode" => mode).increment(1);
}

fn try_outcome(result: BatchResult) -> TryOutcome {
    let outcome = match result {
        BatchResult::Ended(state) => return TryOutcome::Ended(state),
        BatchResult::Stale => return TryOutcome::Stale,
        BatchResult::LockWaitAborted => return TryOutcome::LockWaitAborted,
        BatchResult::Outcome(outcome) => outcome,
    };
    match outcome {
        Outcome::Bought(order) => TryOutcome::Ended(TicketState::Bought(order.id)),
        // By an earlier request with its key, whose ticket Redis has lost.
        Outcome::Replayed(order) => TryOutcome::End(TicketState::AlreadyOrdered(Some(order.id))),
        Outcome::Unknown(_) => TryOutcome::Retry,
        Outcome::Failed => TryOutcome::Defect,
        Outcome::Refused(refusal) => match refusal {
            Refusal::AlreadyOrdered(order) => TryOutcome::End(TicketState::AlreadyOrdered(order)),
            Refusal::SoldOut => TryOutcome::End(TicketState::SoldOut),
            Refusal::Overloaded
            | Refusal::Unavailable(_)
            | Refusal::LockLost
            | Refusal::InProgress => TryOutcome::Retry,
            Refusal::VoucherNotFound
            | Refusal::NotOnSale
            | Refusal::NotStarted(_)
            | Refusal::Ended(_)
            | Refusal::KeyReused => TryOutcome::End(TicketState::Refused),
            // A defect, or a refusal that only payment and cancellation have.
            _ => TryOutcome::Defect,
        },
    }
}
