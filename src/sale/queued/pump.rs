//! The work on one voucher's queue: entries are taken as long as there is room for them, and those
//! that have ended are acknowledged, many at a time. Twice a second, however long the taking waits,
//! the replica shows that it is still at work on what takes longer; once a second it takes over
//! what nobody shows that for. A replica whose database does not answer takes nothing new and shows
//! nothing: what it has goes to those whose database does. While many ask to buy and are admitted,
//! less is taken (see `crowd`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Desk;
use crate::domain::{TicketState, VoucherId};
use crate::failpoint::{self, reach};
use crate::sale::plant::Plant;
use crate::store::{EntryEnd, Queued, StoreError, Take};

/// Entries of a voucher under way in a replica, at most. No more than wait in a lane of `grouped`.
const UNDER_WAY: usize = 512;
/// So many more of those that are taken over, which others must not keep waiting.
const TAKEN_OVER: usize = 256;
/// Entries that are taken, or acknowledged, at once.
const BATCH: usize = 256;
/// How long more entries are waited for when few were there, or few have ended. Their buyers have
/// been answered, and each trip to Redis costs the same for one as for many.
const GATHER: Duration = Duration::from_millis(4);
/// While a crowd comes first, the next entries are taken when no more than so many are still under
/// way, or when that takes so long; and then so many times as long later as that took, at most so
/// much later. Whether there still is one is seen again and again meanwhile.
const FEW: usize = 16;
const CROWDED: Duration = Duration::from_millis(100);
const TIMES_AS_LONG: u32 = 7;
const LATER: Duration = Duration::from_millis(200);
const AGAIN: Duration = Duration::from_millis(5);
/// Between two looks into a queue that is empty: at first, and at most.
const SHORT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_millis(400);
/// How often the replica shows that it is at work; at every second sign it looks for what nobody is
/// at work on.
const SIGN: Duration = Duration::from_millis(500);
const SIGNS_A_LOOK: u32 = 2;
/// Work that takes longer is shown to be under way.
const NOTICEABLE: Duration = Duration::from_millis(300);
/// Entries without a sign of work for so long are taken over. Two signs may get lost, each of which
/// Redis takes half a second not to answer.
const IDLE: Duration = Duration::from_secs(3);
/// How long a replica that ends goes on taking what is in its queues.
const DRAIN: Duration = Duration::from_secs(5);
/// How long it then waits for what it has taken.
const LAST_WORK: Duration = Duration::from_secs(30);
/// How often an acknowledgement is tried that Redis does not answer.
const TRIES: u32 = 20;

/// Takes entries of a voucher's queue. Cheap to clone.
#[derive(Clone)]
pub(super) struct Pump {
    desk: Arc<Desk>,
    voucher: VoucherId,
    news: Arc<Notify>,
    work: Arc<Work>,
}

/// What is under way.
struct Work {
    places: Arc<Semaphore>,
    /// For entries that are taken over.
    spare: Arc<Semaphore>,
    entries: Mutex<HashMap<String, Instant>>,
}

impl Work {
    fn places_for(&self, which: Take<'_>) -> &Arc<Semaphore> {
        match which {
            Take::New | Take::Own(_) => &self.places,
            Take::Idle(_) => &self.spare,
        }
    }

    /// Waits until there is room for so many.
    async fn room_for(&self, entries: usize) {
        let entries = u32::try_from(entries).unwrap_or(u32::MAX);
        let _room_or_closed = self.places.acquire_many(entries).await;
    }

    /// Waits until nothing is under way.
    async fn until_done(&self) {
        for (places, all) in [(&self.places, UNDER_WAY), (&self.spare, TAKEN_OVER)] {
            let all = u32::try_from(all).unwrap_or(u32::MAX);
            let _all_or_closed = places.acquire_many(all).await;
        }
    }
}

/// An entry under way. Dropping it ends that, and without an acknowledgement it comes again.
struct AtWork {
    work: Arc<Work>,
    id: String,
    _place: OwnedSemaphorePermit,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut entries = self.work.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.remove(&self.id);
    }
}

/// An entry whose ticket has ended.
struct Done {
    settlement: EntryEnd,
    _at_work: AtWork,
}

impl Pump {
    pub(super) fn new(desk: Arc<Desk>, voucher: VoucherId, news: Arc<Notify>) -> Self {
        let places = Arc::new(Semaphore::new(UNDER_WAY));
        let spare = Arc::new(Semaphore::new(TAKEN_OVER));
        let work = Arc::new(Work { places, spare, entries: Mutex::default() });
        Self { desk, voucher, news, work }
    }

    /// Works until it is told to end, and then for as long as a replica may that ends. A defect
    /// ends neither the taking nor the keeping nor the acknowledging for good.
    pub(super) async fn run(self, end: CancellationToken) {
        loop {
            let (done, ended) = mpsc::channel(UNDER_WAY + TAKEN_OVER);
            let desk = Arc::clone(&self.desk);
            let acknowledging = tokio::spawn(acknowledge(desk, self.voucher, ended));
            let keeping = tokio::spawn(self.clone().keep_all(done.clone(), end.clone()));
            let mut keeping = AbortOnDropHandle::new(keeping);
            let mut taking = tokio::spawn(self.clone().take_all(done, end.clone()));
            tokio::select! {
                taken = &mut taking => if taken.is_ok() { return self.leave().await },
                _ = acknowledging => taking.abort(),
                _ = &mut keeping => taking.abort(),
            }
            tracing::error!(voucher = %self.voucher, "the work on its queue begins again");
            sleep(LONG).await;
        }
    }

    async fn take_all(self, done: mpsc::Sender<Done>, end: CancellationToken) {
        if let Err(error) = self.take_own(&done).await {
            tracing::debug!(%error, voucher = %self.voucher, "its queue could not be read");
        }
        let mut pause = SHORT;
        let mut ending = None;
        let mut taken_at = None;
        loop {
            let has_room = timeout(LONG, self.work.places.acquire()).await.is_ok();
            // What was acknowledged together makes room together.
            let _much_or_little = timeout(GATHER, self.work.room_for(BATCH)).await;
            if let Some(taken_at) = taken_at.filter(|_| !end.is_cancelled()) {
                self.leave_time_to_the_crowd(taken_at, &end).await;
            }
            let now = Instant::now();
            let taken =
                if self.desk.can_write() { self.take(&done, Take::New).await } else { Ok(0) };
            taken_at = matches!(taken, Ok(1..)).then_some(now);
            if end.is_cancelled() {
                let since = *ending.get_or_insert_with(Instant::now);
                let is_done = has_room && !matches!(taken, Ok(1..));
                if is_done || since.elapsed() > DRAIN {
                    return;
                }
            }
            match taken {
                Ok(BATCH..) => continue,
                Ok(1..) => {
                    pause = SHORT;
                    sleep(GATHER).await;
                    continue;
                }
                Ok(0) => {}
                Err(_) => pause = LONG,
            }
            tokio::select! {
                () = self.news.notified() => pause = SHORT,
                () = sleep(pause) => pause = (pause * 2).min(LONG),
                () = end.cancelled(), if ending.is_none() => {}
            }
        }
    }

    /// Waits until what was taken then is written but for a few, and for a while, if there is one.
    async fn leave_time_to_the_crowd(&self, taken_at: Instant, end: &CancellationToken) {
        let crowd = &self.desk.crowd;
        if !crowd.comes_first() {
            return;
        }
        let _few_or_many = timeout(CROWDED, self.work.room_for(UNDER_WAY - FEW)).await;
        let since = Instant::now();
        let later = ((since - taken_at) * TIMES_AS_LONG).min(LATER);
        while since.elapsed() < later && !crowd.is_over() && !end.is_cancelled() {
            sleep(AGAIN).await;
        }
    }

    /// Shows what is under way until it is aborted, and takes over what nobody shows until the end.
    /// Who could not show its own work takes over nothing, since that might be its own.
    async fn keep_all(self, done: mpsc::Sender<Done>, end: CancellationToken) {
        let mut signs = 0_u32;
        loop {
            sleep(SIGN).await;
            if !self.desk.can_write() {
                // Once it answers again, all others may show their work before any is taken over.
                signs = 0;
                continue;
            }
            if let Err(error) = self.keep().await {
                let voucher = self.voucher;
                tracing::debug!(%error, %voucher, "others may take over its entries");
                continue;
            }
            signs = signs.wrapping_add(1);
            if end.is_cancelled() || !signs.is_multiple_of(SIGNS_A_LOOK) {
                continue;
            }
            if let Ok(taken @ 1..) = self.take(&done, Take::Idle(IDLE)).await {
                tracing::info!(voucher = %self.voucher, taken, "took over entries");
                metrics::counter!("seckill_queue_taken_over_total").increment(taken as u64);
            }
        }
    }

    /// What this consumer took before it was started again.
    async fn take_own(&self, done: &mpsc::Sender<Done>) -> Result<(), StoreError> {
        let (desk, mut after) = (&self.desk, "0".to_owned());
        loop {
            let which = Take::Own(&after);
            let taken = desk.stream.take(self.voucher, &desk.consumer, (which, BATCH)).await?;
            let taken = taken.unwrap_or_default();
            let Some(last) = taken.last().map(|entry| entry.id.clone()) else { return Ok(()) };
            for entry in taken {
                self.start(entry, which, done).await;
            }
            after = last;
        }
    }

    /// Takes entries, as many as there is room for; how many.
    async fn take(&self, done: &mpsc::Sender<Done>, which: Take<'_>) -> Result<usize, StoreError> {
        let room = self.work.places_for(which).available_permits().min(BATCH);
        if room == 0 {
            return Ok(0);
        }
        let desk = &self.desk;
        let taken = desk.stream.take(self.voucher, &desk.consumer, (which, room)).await;
        let taken = taken.inspect_err(|error| {
            tracing::debug!(%error, voucher = %self.voucher, "its queue could not be read");
        });
        let Some(entries) = taken? else {
            desk.reopen(self.voucher).await?;
            return Ok(0);
        };
        let count = entries.len();
        for entry in entries {
            self.start(entry, which, done).await;
        }
        Ok(count)
    }

    /// Has the entry's order written, unless that is under way.
    async fn start(&self, entry: Queued, which: Take<'_>, done: &mpsc::Sender<Done>) {
        let places = Arc::clone(self.work.places_for(which));
        let Ok(place) = places.acquire_owned().await else { return };
        let again = !matches!(which, Take::New);
        let id = entry.id.clone();
        {
            let mut entries = self.work.entries.lock().unwrap_or_else(PoisonError::into_inner);
            if entries.contains_key(&id) {
                return;
            }
            entries.insert(id.clone(), Instant::now());
        }
        let at_work = AtWork { work: Arc::clone(&self.work), id: id.clone(), _place: place };
        let (desk, voucher, done) = (Arc::clone(&self.desk), self.voucher, done.clone());
        tokio::spawn(async move {
            reach(failpoint::QUEUE_DELIVERED);
            let settlement = match entry.order {
                Ok(order) => {
                    let state = desk.settle((&id, &order), again).await;
                    state.map(|state| EntryEnd { id, order, state })
                }
                Err(unreadable) => desk.put_aside(voucher, (id, unreadable)).await,
            };
            if let Some(settlement) = settlement {
                reach(failpoint::QUEUE_ENDED);
                let _ended = done.send(Done { settlement, _at_work: at_work }).await;
            }
        });
    }

    /// Shows what has been under way for longer.
    async fn keep(&self) -> Result<(), StoreError> {
        let ids: Vec<String> = {
            let entries = self.work.entries.lock().unwrap_or_else(PoisonError::into_inner);
            let long = entries.iter().filter(|(_, since)| since.elapsed() > NOTICEABLE);
            long.map(|(id, _)| id.clone()).collect()
        };
        if ids.is_empty() {
            return Ok(());
        }
        self.desk.stream.keep(self.voucher, &self.desk.consumer, &ids).await
    }

    /// Waits for what was taken. What is not finished then is left to others.
    async fn leave(self) {
        if timeout(LAST_WORK, self.work.until_done()).await.is_err() {
            tracing::warn!(voucher = %self.voucher, "entries are left to others");
        }
        if !self.desk.consumer_is_stable
            && let Err(error) = self.desk.stream.leave(self.voucher, &self.desk.consumer).await
        {
            tracing::debug!(%error, "this consumer ends with the sale");
        }
    }
}

/// Acknowledges what has ended, together what ends meanwhile. Ends with the pump and its work.
async fn acknowledge(desk: Arc<Desk>, voucher: VoucherId, mut ended: mpsc::Receiver<Done>) {
    let mut batch = Vec::with_capacity(BATCH);
    while ended.recv_many(&mut batch, BATCH).await > 0 {
        let gather = async {
            while let missing @ 1.. = BATCH - batch.len()
                && ended.recv_many(&mut batch, missing).await > 0
            {}
        };
        let _full_or_few = timeout(GATHER, gather).await;
        let settlements: Vec<_> = batch.iter().map(|done| done.settlement.clone()).collect();
        for attempt in 1..=TRIES {
            match settle(&desk, voucher, &settlements).await {
                Ok(()) => break,
                Err(error) if attempt == TRIES => {
                    tracing::warn!(%error, %voucher, "tickets have ended, and come again");
                }
                Err(_) => sleep(LONG).await,
            }
        }
        for EntryEnd { state, .. } in &settlements {
            metrics::counter!("seckill_tickets_total", "state" => state.name()).increment(1);
        }
        reach(failpoint::QUEUE_ACKNOWLEDGED);
        batch.clear();
    }
}

async fn settle(desk: &Desk, voucher: VoucherId, ended: &[EntryEnd]) -> Result<(), StoreError> {
    if desk.has(Plant::LostCompensation) {
        let (bought, others): (Vec<_>, Vec<_>) = ended
            .iter()
            .cloned()
            .partition(|settlement| matches!(settlement.state, TicketState::Bought(_)));
        let ids: Vec<_> = others.into_iter().map(|settlement| settlement.id).collect();
        if !ids.is_empty() {
            desk.stream.drop_entries(voucher, &ids).await?;
        }
        return desk.stream.settle(voucher, &bought).await.map(drop);
    }
    desk.stream.settle(voucher, ended).await.map(drop)
}
