//! The consumer of one voucher's stream: reads entries, has them written, acknowledges them.
//!
//! It reads as long as there is room, and acknowledges ended entries many at a time. Twice a second
//! a heartbeat renews its claim on entries that take longer. Once a second it claims entries
//! that have had no heartbeat for 3 s. A replica whose database does not answer reads nothing and
//! sends no heartbeats, so that another replica claims its entries. Under a load of admissions it
//! reads less (`admission_load`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::QueueContext;
use super::acknowledgement::acknowledge_ended;
use crate::domain::VoucherId;
use crate::failpoint::{self, reach};
use crate::sale::injected_bug::InjectedBug;
use crate::store::{EntryEnd, ReadMode, StoreError, StreamEntry};

/// The most entries of a voucher in flight in a replica, no more than a queue of the batch writer
/// takes.
const MAX_IN_FLIGHT: usize = 512;
/// The most claimed entries in flight, beside the replica's own.
const MAX_CLAIMED: usize = 256;
/// The most entries in one read or acknowledgement.
pub(super) const BATCH: usize = 256;
/// How long a small batch waits for more entries: a round trip costs the same for one as for many.
pub(super) const GATHER_TIME: Duration = Duration::from_millis(4);
/// Under a load of admissions, the next read waits until at most this many entries are in flight.
const LOW_WATER: usize = 16;
/// The longest wait for [`LOW_WATER`].
const MAX_DRAIN_WAIT: Duration = Duration::from_millis(100);
/// The pause after that, in multiples of the time since the last read.
const PAUSE_FACTOR: u32 = 7;
/// The longest such pause.
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// How often the load is checked during the pause.
const LOAD_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The first pause between two reads of an empty queue.
const MIN_POLL_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause between two reads of an empty queue.
pub(super) const MAX_POLL_PAUSE: Duration = Duration::from_millis(400);
/// How often the replica renews its claim on entries in flight.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// Idle entries of other replicas are claimed at every second heartbeat.
const HEARTBEATS_PER_CLAIM: u32 = 2;
/// The age at which an entry in flight gets heartbeats.
const HEARTBEAT_AFTER: Duration = Duration::from_millis(300);
/// Entries without a heartbeat for that long are claimed. Two heartbeats may be lost, each after
/// the half second that Redis takes not to answer.
const CLAIM_IDLE_TIME: Duration = Duration::from_secs(3);
/// How long an ending replica reads what is left in its queues.
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// How long an ending replica then waits for entries in flight.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Consumes a voucher's stream. Cheap to clone.
#[derive(Clone)]
pub(super) struct StreamConsumer {
    context: Arc<QueueContext>,
    voucher: VoucherId,
    new_entries: Arc<Notify>,
    in_flight: Arc<InFlightEntries>,
}

/// The entries in flight.
struct InFlightEntries {
    places: Arc<Semaphore>,
    /// For claimed entries.
    claimed_places: Arc<Semaphore>,
    entries: Mutex<HashMap<String, Instant>>,
}

impl InFlightEntries {
    fn places_for(&self, mode: ReadMode<'_>) -> &Arc<Semaphore> {
        match mode {
            ReadMode::New | ReadMode::Own(_) => &self.places,
            ReadMode::Idle(_) => &self.claimed_places,
        }
    }

    /// Waits until there is room for that many entries.
    async fn room_for(&self, entries: usize) {
        let entries = u32::try_from(entries).unwrap_or(u32::MAX);
        let _room_or_closed = self.places.acquire_many(entries).await;
    }

    /// Waits until nothing is in flight.
    async fn until_done(&self) {
        for (places, all) in [(&self.places, MAX_IN_FLIGHT), (&self.claimed_places, MAX_CLAIMED)] {
            let all = u32::try_from(all).unwrap_or(u32::MAX);
            let _all_or_closed = places.acquire_many(all).await;
        }
    }
}

/// Keeps an entry in flight. If it is dropped without an acknowledgement, the entry is redelivered.
struct InFlightEntry {
    registry: Arc<InFlightEntries>,
    id: String,
    _place: OwnedSemaphorePermit,
}

impl Drop for InFlightEntry {
    fn drop(&mut self) {
        let mut entries = self.registry.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.remove(&self.id);
    }
}

/// An entry whose ticket has ended.
pub(super) struct FinishedEntry {
    pub(super) end: EntryEnd,
    _in_flight: InFlightEntry,
}

impl StreamConsumer {
    pub(super) fn new(
        context: Arc<QueueContext>,
        voucher: VoucherId,
        new_entries: Arc<Notify>,
    ) -> Self {
        let places = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        let claimed_places = Arc::new(Semaphore::new(MAX_CLAIMED));
        let in_flight =
            Arc::new(InFlightEntries { places, claimed_places, entries: Mutex::default() });
        Self { context, voucher, new_entries, in_flight }
    }

    /// Runs until `end`, and then for as long as an ending replica may. A panic in one of its loops
    /// restarts all of them.
    pub(super) async fn run(self, end: CancellationToken) {
        loop {
            let (finished, ended) = mpsc::channel(MAX_IN_FLIGHT + MAX_CLAIMED);
            let context = Arc::clone(&self.context);
            let acknowledging = tokio::spawn(acknowledge_ended(context, self.voucher, ended));
            let heartbeats =
                tokio::spawn(self.clone().heartbeat_loop(finished.clone(), end.clone()));
            let mut heartbeats = AbortOnDropHandle::new(heartbeats);
            let mut reading = tokio::spawn(self.clone().read_loop(finished, end.clone()));
            tokio::select! {
                read = &mut reading => if read.is_ok() { return self.leave().await },
                _ = acknowledging => reading.abort(),
                _ = &mut heartbeats => reading.abort(),
            }
            tracing::error!(voucher = %self.voucher, "consumer ended unexpectedly; restarting");
            sleep(MAX_POLL_PAUSE).await;
        }
    }

    async fn read_loop(self, finished: mpsc::Sender<FinishedEntry>, end: CancellationToken) {
        if let Err(error) = self.read_own(&finished).await {
            tracing::debug!(%error, voucher = %self.voucher, "stream not read; trying again");
        }
        let mut pause = MIN_POLL_PAUSE;
        let mut ending = None;
        let mut read_at = None;
        loop {
            let has_room = timeout(MAX_POLL_PAUSE, self.in_flight.places.acquire()).await.is_ok();
            // An acknowledgement makes room for many entries at once.
            let _much_or_little = timeout(GATHER_TIME, self.in_flight.room_for(BATCH)).await;
            if let Some(read_at) = read_at.filter(|_| !end.is_cancelled()) {
                self.yield_to_admissions(read_at, &end).await;
            }
            let now = Instant::now();
            let read = if self.context.can_write() {
                self.read(&finished, ReadMode::New).await
            } else {
                Ok(0)
            };
            read_at = matches!(read, Ok(1..)).then_some(now);
            if end.is_cancelled() {
                let since = *ending.get_or_insert_with(Instant::now);
                let is_done = has_room && !matches!(read, Ok(1..));
                if is_done || since.elapsed() > DRAIN_TIME {
                    return;
                }
            }
            match read {
                Ok(BATCH..) => continue,
                Ok(1..) => {
                    pause = MIN_POLL_PAUSE;
                    sleep(GATHER_TIME).await;
                    continue;
                }
                Ok(0) => {}
                Err(_) => pause = MAX_POLL_PAUSE,
            }
            tokio::select! {
                () = self.new_entries.notified() => pause = MIN_POLL_PAUSE,
                () = sleep(pause) => pause = (pause * 2).min(MAX_POLL_PAUSE),
                () = end.cancelled(), if ending.is_none() => {}
            }
        }
    }

    /// Under a load of admissions: waits until most entries are written, and then a multiple of
    /// that.
    async fn yield_to_admissions(&self, read_at: Instant, end: &CancellationToken) {
        let admission_load = &self.context.admission_load;
        if !admission_load.has_priority() {
            return;
        }
        let _few_or_many =
            timeout(MAX_DRAIN_WAIT, self.in_flight.room_for(MAX_IN_FLIGHT - LOW_WATER)).await;
        let since = Instant::now();
        let later = ((since - read_at) * PAUSE_FACTOR).min(MAX_PAUSE);
        while since.elapsed() < later && !admission_load.is_over() && !end.is_cancelled() {
            sleep(LOAD_POLL_INTERVAL).await;
        }
    }

    /// Sends heartbeats until it is aborted, and claims idle entries until `end`.
    ///
    /// After a failed heartbeat nothing is claimed: the idle entries might be its own.
    async fn heartbeat_loop(self, finished: mpsc::Sender<FinishedEntry>, end: CancellationToken) {
        let mut heartbeats = 0_u32;
        loop {
            sleep(HEARTBEAT_INTERVAL).await;
            if !self.context.can_write() {
                // Once the database answers, other replicas get time for heartbeats before a claim.
                heartbeats = 0;
                continue;
            }
            if let Err(error) = self.heartbeat().await {
                let voucher = self.voucher;
                tracing::debug!(%error, %voucher, "heartbeat failed; entries may be claimed");
                continue;
            }
            heartbeats = heartbeats.wrapping_add(1);
            if end.is_cancelled() || !heartbeats.is_multiple_of(HEARTBEATS_PER_CLAIM) {
                continue;
            }
            if let Ok(read @ 1..) = self.read(&finished, ReadMode::Idle(CLAIM_IDLE_TIME)).await {
                tracing::info!(voucher = %self.voucher, read, "claimed idle entries");
                metrics::counter!("seckill_queue_taken_over_total").increment(read as u64);
            }
        }
    }

    /// Reads what this consumer had read before a restart.
    async fn read_own(&self, finished: &mpsc::Sender<FinishedEntry>) -> Result<(), StoreError> {
        let (context, mut after) = (&self.context, "0".to_owned());
        loop {
            let mode = ReadMode::Own(&after);
            let read = context.stream.read(self.voucher, &context.consumer, mode, BATCH).await?;
            let read = read.unwrap_or_default();
            let Some(last) = read.last().map(|entry| entry.id.clone()) else { return Ok(()) };
            for entry in read {
                self.start_entry(entry, mode, finished).await;
            }
            after = last;
        }
    }

    /// Reads as many entries as there is room for; how many.
    async fn read(
        &self,
        finished: &mpsc::Sender<FinishedEntry>,
        mode: ReadMode<'_>,
    ) -> Result<usize, StoreError> {
        let room = self.in_flight.places_for(mode).available_permits().min(BATCH);
        if room == 0 {
            return Ok(0);
        }
        let context = &self.context;
        let read = context.stream.read(self.voucher, &context.consumer, mode, room).await;
        let read = read.inspect_err(|error| {
            tracing::debug!(%error, voucher = %self.voucher, "stream not read; trying again");
        });
        let Some(entries) = read? else {
            context.reopen(self.voucher).await?;
            return Ok(0);
        };
        let count = entries.len();
        for entry in entries {
            self.start_entry(entry, mode, finished).await;
        }
        Ok(count)
    }

    /// Starts a task that finishes the entry, unless it is in flight.
    async fn start_entry(
        &self,
        entry: StreamEntry,
        mode: ReadMode<'_>,
        finished: &mpsc::Sender<FinishedEntry>,
    ) {
        let places = Arc::clone(self.in_flight.places_for(mode));
        let Ok(place) = places.acquire_owned().await else { return };
        if entry.order.is_err() && self.context.hooks.has_bug(InjectedBug::PoisonEntryBlocks) {
            // No further try can read it either, so the loop that has read it is at its end.
            return self.context.end.cancelled().await;
        }
        let is_redelivered = !matches!(mode, ReadMode::New);
        let id = entry.id.clone();
        {
            let mut entries = self.in_flight.entries.lock().unwrap_or_else(PoisonError::into_inner);
            if entries.contains_key(&id) {
                return;
            }
            entries.insert(id.clone(), Instant::now());
        }
        let in_flight =
            InFlightEntry { registry: Arc::clone(&self.in_flight), id: id.clone(), _place: place };
        let (context, voucher, finished) =
            (Arc::clone(&self.context), self.voucher, finished.clone());
        tokio::spawn(async move {
            reach(failpoint::QUEUE_DELIVERED);
            let end = match entry.order {
                Ok(order) => {
                    let state = context.finish_entry(&id, &order, is_redelivered).await;
                    state.map(|state| EntryEnd { id, order, state })
                }
                Err(entry) => context.quarantine(voucher, id, entry).await,
            };
            if let Some(end) = end {
                reach(failpoint::QUEUE_ENDED);
                let _ended = finished.send(FinishedEntry { end, _in_flight: in_flight }).await;
            }
        });
    }

    /// Renews the claim on entries that have been in flight for longer.
    async fn heartbeat(&self) -> Result<(), StoreError> {
        let ids: Vec<String> = {
            let entries = self.in_flight.entries.lock().unwrap_or_else(PoisonError::into_inner);
            let long = entries.iter().filter(|(_, since)| since.elapsed() > HEARTBEAT_AFTER);
            long.map(|(id, _)| id.clone()).collect()
        };
        if ids.is_empty() {
            return Ok(());
        }
        self.context.stream.heartbeat(self.voucher, &self.context.consumer, &ids).await
    }

    /// Waits for entries in flight. Other replicas claim those that are not finished by then.
    async fn leave(self) {
        if timeout(SHUTDOWN_TIMEOUT, self.in_flight.until_done()).await.is_err() {
            tracing::warn!(voucher = %self.voucher, "entries left to other replicas");
        }
        let context = &self.context;
        let left = if context.hooks.has_bug(InjectedBug::OneConsumerName) {
            context.stream.delete_consumer(self.voucher, &context.consumer).await
        } else if context.consumer_is_stable {
            Ok(())
        } else {
            context.stream.leave(self.voucher, &context.consumer).await
        };
        if let Err(error) = left {
            tracing::debug!(%error, "consumer not deleted; it ends with the stream");
        }
    }
}
