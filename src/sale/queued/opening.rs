//! Opening a queue: the first request that finds none, and the first after Redis has lost it,
//! raises the epoch in the database, reads the stock there and brings both to Redis. And refilling
//! one: units that came back to the database are admitted again.

use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use tokio::time::{sleep, timeout};

use super::Desk;
use crate::domain::VoucherId;
use crate::failpoint::{self, reach};
use crate::store::{Admission, Request, StoreError};

/// How long a request waits for a queue to be opened.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks whether another replica has opened it.
const LOOK: Duration = Duration::from_millis(10);
/// The same of those who wait for another request of this replica.
const LONG_LOOK: Duration = Duration::from_millis(100);
/// The shortest time between two comparisons of a queue's stock with the database's.
const REFILL: Duration = Duration::from_millis(200);

impl Desk {
    /// Admits, after opening the queue if it is not open, and after refilling it if it is empty and
    /// was not compared with the database just now.
    pub(super) async fn admit(
        self: &Arc<Self>,
        request: &Request,
    ) -> Result<Admission, StoreError> {
        match self.stream.admit(request).await? {
            Admission::Unopened => {
                let late = |_| StoreError::NoAnswer { server: "redis" };
                timeout(PATIENCE, self.open_and_admit(request)).await.map_err(late)?
            }
            Admission::SoldOut if self.may_refill(request.ticket.voucher()) => {
                match self.refill(request.ticket.voucher()).await {
                    Ok(true) => self.stream.admit(request).await,
                    Ok(false) => Ok(Admission::SoldOut),
                    Err(error) => {
                        tracing::debug!(%error, "a queue could not be refilled");
                        Ok(Admission::SoldOut)
                    }
                }
            }
            admission => Ok(admission),
        }
    }

    /// One request of a replica opens; the others wait for that, and then ask all at once.
    async fn open_and_admit(&self, request: &Request) -> Result<Admission, StoreError> {
        loop {
            let mut opened = pin!(self.opened.notified());
            // Whoever opens it between the next two lines is heard as well.
            opened.as_mut().enable();
            let admission = self.stream.admit(request).await?;
            if admission != Admission::Unopened {
                return Ok(admission);
            }
            if let Ok(_turn) = self.opening.try_lock() {
                self.open_or_wait(request.ticket.voucher(), request.window.ends_at).await?;
                self.opened.notify_waiters();
            } else {
                // It may be another voucher's, or be given up in the middle.
                let _opened_or_not = timeout(LONG_LOOK, opened).await;
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
            sleep(LOOK).await;
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

    /// Opens anew a queue that is of no use: its stream is gone, or its epoch does not count any
    /// more, because an opener died between the database and Redis. Whoever finds that somebody is
    /// opening one does not wait for that: it finds its queue open, or asks again.
    pub(super) async fn reopen(&self, voucher: VoucherId) -> Result<(), StoreError> {
        let Ok(_turn) = self.opening.try_lock() else { return Ok(()) };
        let Some(seen) = self.stream.progress(voucher).await? else { return Ok(()) };
        let still_counts = self.tickets.units(voucher, seen.epoch).await?.is_some();
        if still_counts && self.stream.has_group(voucher).await? {
            return Ok(());
        }
        let Ok(Some(terms)) = self.catalogue.terms(voucher).await else { return Ok(()) };
        if self.stream.begin_to_open(voucher, Some(seen.epoch)).await? {
            self.open(voucher, terms.window.ends_at).await?;
        }
        Ok(())
    }

    /// Whether it is time to compare the stock again; the caller then does.
    fn may_refill(self: &Arc<Self>, voucher: VoucherId) -> bool {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry(voucher).or_insert_with(|| self.begin(voucher));
        let is_time = lane.refilled.is_none_or(|last| last.elapsed() > REFILL);
        if is_time {
            lane.refilled = Some(Instant::now());
        }
        is_time
    }

    /// Takes over the units that came to the database; whether there are any to admit.
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
