//! The queued mode: a purchase is admitted in Redis and answered with a ticket; its order is
//! written from a stream.
//!
//! Admission (`entry`) is one script (`lua/sale/admit.lua`): the window, one purchase a user, a
//! unit, a place in the stream. A replica reads entries of the stream (`stream_consumer`), has
//! their orders written by the batch writer (`entry_processing`) and acknowledges entries whose
//! tickets have ended. Entries of a replica that died are claimed by another one. Under a high load
//! of admissions, each queue gets about an eighth of the time (`admission_load`): a client waits
//! for an admission, and not for an entry.
//!
//! The guarantees are those of the direct mode, because the database decides everything:
//!
//! - **A ticket ends once.** Its row in `tickets` is written with its order, or says that there is
//!   none; a unique key admits one row. An entry that is delivered again finds that row. The script
//!   that acknowledges an entry gives its unit and its user's mark back if there is no order. Only
//!   the first acknowledgement does that.
//! - **Units that Redis has lost cannot be sold.** Opening a queue, for the first time or after
//!   Redis has lost its data, raises the sale's epoch in the database and then reads the stock. An
//!   order is written under the epoch of its admission, or not at all.
//! - **No ticket is pending for ever.** A ticket that Redis does not know has a row in `tickets`,
//!   or its next reader writes one that says `lost`.
//!
//! No lock is taken. The user's mark refuses a second purchase from admission to the end of the
//! ticket, and the unique key refuses it for ever. The order of admission is not kept among
//! concurrent tickets. A ticket waits for as long as the database or Redis is down.
//!
//! If the database has no unit left, that is answered from memory, as in the direct mode
//! (`sold_out_cache`). While units are admitted and not written, each request asks Redis: the
//! answer depends on the user, and a unit may come back without a change in the database.
//!
//! Units that come back are sold within a second. A voucher is cached for half a second, and an
//! empty queue is compared with the database at most every 0.2 s.
//!
//! Tests: `tests/service/queued/`.

mod acknowledgement;
mod admission_load;
mod drain_rate;
mod entry;
mod entry_processing;
mod idempotency;
mod opening;
mod quarantine;
mod stream_consumer;
mod ticket_signer;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use distlock::HoldKind;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::batch_writer::BatchWriter;
use super::injected_bug::InjectedBug;
use super::lab_hooks::LabHooks;
use super::voucher_cache::VoucherCache;
use super::{Parts, SaleConfig};
use crate::domain::{TicketId, TicketState, UserId, VoucherId};
use crate::store::{Health, Orders, SaleStream, StoreError, Tickets};
use admission_load::AdmissionLoad;
use drain_rate::DrainRates;
pub use entry::AdmissionOutcome;
use stream_consumer::StreamConsumer;
pub use ticket_signer::TicketSigner;

/// How often vouchers with a queue are listed.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// The list may not have a queue that was opened this recently.
const MIN_WORKER_AGE: Duration = Duration::from_secs(10);
/// How long workers may take at the end of the process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(40);
/// The most entries that are written alone at a time, and the most of those that waited for a row.
const MAX_ALONE: usize = 4;

/// The name of every replica's consumer, with an injected bug.
const SHARED_CONSUMER: &str = "c1";

/// A ticket as its user sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TicketProgress {
    /// Where it stands.
    pub state: TicketState,
    /// While it is pending: how many tickets of other users are before it.
    pub users_ahead: Option<u64>,
    /// How long it probably waits, in seconds, from the rate of the last seconds.
    pub expected_wait_s: Option<u64>,
}

impl From<TicketState> for TicketProgress {
    fn from(state: TicketState) -> Self {
        Self { state, users_ahead: None, expected_wait_s: None }
    }
}

/// What the queued mode needs beside [`Parts`].
pub struct QueueParts {
    /// The queues.
    pub stream: SaleStream,
    /// Signs tickets.
    pub signer: TicketSigner,
    /// This replica's name in the consumer groups.
    pub consumer: String,
    /// Whether the replica keeps that name across restarts.
    pub consumer_is_stable: bool,
}

/// The queued mode of a replica. Cheap to clone.
#[derive(Clone)]
pub struct Queue(Arc<QueueContext>);

/// What the parts of the queued mode share.
struct QueueContext {
    hooks: LabHooks,
    stream: SaleStream,
    signer: TicketSigner,
    consumer: String,
    consumer_is_stable: bool,
    tickets: Tickets,
    orders: Orders,
    voucher_cache: VoucherCache,
    batch_writer: BatchWriter,
    health: Health,
    admission_load: AdmissionLoad,
    drain_rates: DrainRates,
    /// Held by the request that opens a queue; `opened` wakes the others.
    opening: tokio::sync::Mutex<()>,
    opened: Notify,
    alone: Semaphore,
    after_lock_wait: Semaphore,
    workers: Mutex<HashMap<VoucherId, VoucherWorker>>,
    tasks: TaskTracker,
    end: CancellationToken,
}

/// The worker of one voucher's queue.
struct VoucherWorker {
    /// Signals new entries.
    new_entries: Arc<Notify>,
    end: CancellationToken,
    since: Instant,
    /// When its stock was last compared with the database.
    refilled: Option<Instant>,
}

impl Queue {
    pub(super) fn new(
        config: &SaleConfig,
        parts: &Parts,
        voucher_cache: VoucherCache,
        batch_writer: BatchWriter,
        queue: QueueParts,
    ) -> Self {
        let QueueParts { stream, signer, consumer, consumer_is_stable } = queue;
        let hooks = LabHooks::new(config, HoldKind::Nothing);
        let is_shared = hooks.has_bug(InjectedBug::OneConsumerName);
        Self(Arc::new(QueueContext {
            hooks,
            stream,
            signer,
            consumer: if is_shared { SHARED_CONSUMER.to_owned() } else { consumer },
            consumer_is_stable,
            tickets: Tickets::new(parts.pool.clone()),
            orders: parts.orders.clone(),
            voucher_cache,
            batch_writer,
            health: parts.health.clone(),
            admission_load: AdmissionLoad::default(),
            drain_rates: DrainRates::default(),
            opening: tokio::sync::Mutex::default(),
            opened: Notify::new(),
            alone: Semaphore::new(MAX_ALONE),
            after_lock_wait: Semaphore::new(MAX_ALONE),
            workers: Mutex::default(),
            tasks: TaskTracker::new(),
            end: CancellationToken::new(),
        }))
    }

    /// How far a ticket has come; `None` if it is not that user's.
    pub async fn progress(
        &self,
        user: UserId,
        ticket: TicketId,
    ) -> Result<Option<TicketProgress>, StoreError> {
        let context = &self.0;
        if !context.signer.is_of(ticket, user) {
            return Ok(None);
        }
        if let Some((state, place)) = context.stream.place(ticket).await? {
            let (voucher, now) = (ticket.voucher(), Instant::now());
            return Ok(Some(TicketProgress {
                state,
                users_ahead: place.map(|place| place.ahead()),
                expected_wait_s: place
                    .and_then(|place| context.drain_rates.expected_wait_s(voucher, &place, now)),
            }));
        }
        // Redis has lost the ticket, or the sale is long over. Every end has a row.
        let state = match context.tickets.find(ticket).await? {
            Some(state) => state,
            None => context.tickets.end(ticket, user, TicketState::Lost).await?,
        };
        Ok(Some(state.into()))
    }

    /// Runs workers for the queues of all vouchers until `finish` is called.
    pub async fn run(self) {
        let context = &self.0;
        while !context.end.is_cancelled() {
            match context.tickets.queues().await {
                Ok(vouchers) => context.set_workers(&vouchers.into_iter().collect()),
                Err(error) => {
                    tracing::debug!(%error, "queues not listed; workers stay as they are");
                }
            }
            tokio::select! {
                () = sleep(LIST_INTERVAL) => {}
                () = context.end.cancelled() => {}
            }
        }
    }

    /// Reads what is left in the queues for up to 5 s, finishes entries in flight, and ends.
    pub(super) async fn finish(&self) {
        self.0.end.cancel();
        self.0.tasks.close();
        if timeout(SHUTDOWN_TIMEOUT, self.0.tasks.wait()).await.is_err() {
            tracing::error!("entries still in flight at the end; other replicas claim them");
        }
    }
}

impl QueueContext {
    /// Signals a new entry to the voucher's worker, which is started if there is none.
    fn wake(self: &Arc<Self>, voucher: VoucherId) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = workers.entry(voucher).or_insert_with(|| self.start_worker(voucher));
        worker.new_entries.notify_one();
    }

    /// Starts and stops workers, so that these vouchers have one. New workers are kept.
    fn set_workers(self: &Arc<Self>, vouchers: &HashSet<VoucherId>) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.retain(|voucher, worker| {
            let stays = vouchers.contains(voucher) || worker.since.elapsed() < MIN_WORKER_AGE;
            if !stays {
                worker.end.cancel();
            }
            stays
        });
        for voucher in vouchers {
            workers.entry(*voucher).or_insert_with(|| self.start_worker(*voucher));
        }
    }

    fn start_worker(self: &Arc<Self>, voucher: VoucherId) -> VoucherWorker {
        let (new_entries, end) = (Arc::new(Notify::new()), self.end.child_token());
        let consumer = StreamConsumer::new(Arc::clone(self), voucher, Arc::clone(&new_entries));
        self.tasks.spawn(consumer.run(end.clone()));
        VoucherWorker { new_entries, end, since: Instant::now(), refilled: None }
    }
}
