//! Opening and refilling a queue.
//!
//! The first request that finds no queue, also after Redis has lost it, raises the epoch in the
//! database, reads the stock there and writes both to Redis. A refill admits units that came back
//! to the database.

use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use tokio::time::{sleep, timeout};

use super::{Queue, QueueContext};
use crate::domain::VoucherId;
use crate::failpoint::{self, reach};
use crate::sale::injected_bug::InjectedBug;
use crate::store::{Admission, AdmissionRequest, StoreError};

/// How long a request waits for a queue to be opened.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause between two checks whether another replica has opened it.
const OPEN_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The longest wait for another request of this replica that opens it.
const LOCAL_OPEN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The shortest time between two comparisons of a queue's stock with the database.
const REFILL_INTERVAL: Duration = Duration::from_millis(200);

impl Queue {
    /// Whether there are units to admit, of a voucher of which the database has some. An empty
    /// queue is refilled as for a purchase.
    pub(in crate::sale) async fn has_units(&self, voucher: VoucherId) -> Result<bool, StoreError> {
        let context = &self.0;
        match context.stream.units_left(voucher).await? {
            Some(..=0) => Ok(context.may_refill(voucher) && context.refill(voucher).await?),
            Some(_) | None => Ok(true),
        }
    }
}

impl QueueContext {
    /// Admits a purchase. Opens the queue first if it is not open, and refills it if it is empty
    /// and was not compared with the database for 0.2 s.
    pub(super) async fn admit(
        self: &Arc<Self>,
        request: &AdmissionRequest,
    ) -> Result<Admission, StoreError> {
        match self.stream.admit(request).await? {
            Admission::Unopened if self.counts_as_empty(request.ticket.voucher()).await? => {
                Ok(Admission::SoldOut)
            }
            Admission::Unopened => {
                let late = |_| StoreError::TimedOut { server: "redis" };
                timeout(OPEN_TIMEOUT, self.open_and_admit(request)).await.map_err(late)?
            }
            Admission::SoldOut if self.may_refill(request.ticket.voucher()) => {
                match self.refill(request.ticket.voucher()).await {
                    Ok(true) => self.stream.admit(request).await,
                    Ok(false) => Ok(Admission::SoldOut),
                    Err(error) => {
                        tracing::debug!(%error, "queue not refilled; answered as sold out");
                        Ok(Admission::SoldOut)
                    }
                }
            }
            admission => Ok(admission),
        }
    }

    /// Whether a queue that is not open is taken for one without units: where it was open before,
    /// with an injected bug.
    async fn counts_as_empty(&self, voucher: VoucherId) -> Result<bool, StoreError> {
        Ok(self.hooks.has_bug(InjectedBug::MissingStockKey)
            && self.tickets.queues().await?.contains(&voucher))
    }

    /// One request of a replica opens the queue; the others wait for that and then ask again.
    async fn open_and_admit(&self, request: &AdmissionRequest) -> Result<Admission, StoreError> {
        loop {
            let mut opened = pin!(self.opened.notified());
            // Enabled before the check, so that no notification in between is missed.
            opened.as_mut().enable();
            let admission = self.stream.admit(request).await?;
            if admission != Admission::Unopened {
                return Ok(admission);
            }
            if let Ok(_turn) = self.opening.try_lock() {
                self.open_or_wait(request.ticket.voucher(), request.window.ends_at).await?;
                self.opened.notify_waiters();
            } else {
                // The opening may be that of another voucher, or be dropped.
                let _opened_or_not = timeout(LOCAL_OPEN_POLL_INTERVAL, opened).await;
            }
        }
    }

    /// Opens the queue, or waits for another replica that does.
    async fn open_or_wait(
        &self,
        voucher: VoucherId,
        ends_at: OffsetDateTime,
    ) -> Result<(), StoreError> {
        loop {
            if self.stream.begin_to_open(voucher, None).await? {
                return self.open(voucher, ends_at).await;
            }
            if self.stream.progress(voucher).await?.is_some() {
                return Ok(());
            }
            sleep(OPEN_POLL_INTERVAL).await;
        }
    }

    async fn open(&self, voucher: VoucherId, ends_at: OffsetDateTime) -> Result<(), StoreError> {
        let Some(opening) = self.tickets.open(voucher).await? else { return Ok(()) };
        reach(failpoint::QUEUE_EPOCH_RAISED);
        if self.stream.open(voucher, &opening, ends_at).await? {
            let (epoch, stock) = (opening.epoch, opening.units.left);
            tracing::info!(%voucher, epoch, stock, "queue opened");
        }
        reach(failpoint::QUEUE_OPENED);
        Ok(())
    }

    /// Reopens a queue whose stream is lost, or whose epoch is not the current one because an
    /// opener died between the database and Redis. Does not wait for another opening in this
    /// replica.
    pub(super) async fn reopen(&self, voucher: VoucherId) -> Result<(), StoreError> {
        let Ok(_turn) = self.opening.try_lock() else { return Ok(()) };
        let Some(seen) = self.stream.progress(voucher).await? else { return Ok(()) };
        let still_counts = self.tickets.units(voucher, seen.epoch).await?.is_some();
        if still_counts && self.stream.has_group(voucher).await? {
            return Ok(());
        }
        let Ok(Some(terms)) = self.voucher_cache.terms(voucher).await else { return Ok(()) };
        if self.stream.begin_to_open(voucher, Some(seen.epoch)).await? {
            self.open(voucher, terms.window.ends_at).await?;
        }
        Ok(())
    }

    /// Whether to compare the stock with the database now; the caller then does.
    fn may_refill(self: &Arc<Self>, voucher: VoucherId) -> bool {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = workers.entry(voucher).or_insert_with(|| self.start_worker(voucher));
        let is_time = worker.refilled.is_none_or(|last| last.elapsed() > REFILL_INTERVAL);
        if is_time {
            worker.refilled = Some(Instant::now());
        }
        is_time
    }

    /// Adds the units that came back to the database; whether there are any to admit.
    async fn refill(&self, voucher: VoucherId) -> Result<bool, StoreError> {
        let Some(seen) = self.stream.progress(voucher).await? else { return Ok(false) };
        let Some(units) = self.tickets.units(voucher, seen.epoch).await? else { return Ok(false) };
        let came_back = self.stream.refill(voucher, seen, units).await?;
        if came_back {
            tracing::info!(%voucher, ?seen, ?units, "units came back");
        }
        Ok(came_back)
    }
}
