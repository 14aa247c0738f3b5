//! Runs a plan over a bounded number of connections.
//!
//! All connections lie in one *pool*. An arrival takes as many free ones as it has requests. Each
//! is handed its request before the answer of any is awaited. The task that returns a connection
//! starts the next arrival:
//!
//! - In a closed loop that is the next one of the plan. So while any are left, at least
//!   `connections - (requests of one arrival - 1)` requests are in flight.
//! - In an open loop a thread of its own, the pacer, starts arrivals at their moments. Arrivals
//!   that find no free connection wait in a queue, in the order of their moments. An arrival is
//!   dropped and counted when the queue is full, or when it has waited as long as an answer may
//!   take. Latency counts from the intended moment, so a stall of the service delays every arrival
//!   during it.
//!
//! Memory does not grow with the length of the load. Requests go to the history and to
//! [`LiveFigures`]; only tickets that have not ended are kept, by `follow`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use loadtest_measure::error::{Error, Result};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::client::Connection;
use crate::cost::CostMeter;
use crate::follow::{AdmittedRequest, NOT_FOLLOWED, TicketAcceptance, Tickets};
use crate::history::{Event, Invoke, Recorder};
use crate::live::{CompletedRequest, LiveFigures};
use crate::mix::Fate;
use crate::outcome::SAME_TICKET;
use crate::plan::{Arrivals, Batch, Plan};
use crate::request::Purchase;
use crate::request_result::RequestResult;
use crate::stats::Figures;
use crate::trace::TraceError;
use crate::{api, follow, request_result, retry};

/// Most arrivals that wait for a connection.
const MAX_WAITING: usize = 100_000;
/// Longest the pacer sleeps without looking whether the load was given up.
const PACER_SLICE: Duration = Duration::from_millis(100);

/// Opens all connections of a plan by asking each for the first voucher, so that the load itself
/// opens none.
pub async fn connect(plan: &Plan) -> Result<Vec<Connection>> {
    let first = plan.vouchers.first().copied().unwrap_or_default().to_string();
    let opened = (0..plan.connections).map(|_| async {
        let mut connection = Connection::new(plan.target.clone(), plan.timeout);
        retry!(api::voucher(&mut connection, &first)).map(|_| connection)
    });
    try_join_all(opened).await.map_err(|error| Error::Unanswered(error.to_string()))
}

/// Runs the load to its end, which the plan's limits and its time-out bound.
pub async fn run(
    plan: &Plan,
    connections: Vec<Connection>,
    recorder: &Recorder,
    live: &Arc<LiveFigures>,
) -> Result<Figures> {
    run_until(&CancellationToken::new(), plan, connections, (recorder, live)).await
}

/// Runs the plan until `stop` is cancelled: then no arrival starts any more, and requests in flight
/// are awaited.
pub async fn run_until(
    stop: &CancellationToken,
    plan: &Plan,
    connections: Vec<Connection>,
    (recorder, live): (&Recorder, &Arc<LiveFigures>),
) -> Result<Figures> {
    let broken = |error: TraceError| Error::Usage(error.to_string());
    let arrivals = Arrivals::new(plan).map_err(broken)?;
    let is_open = plan.arrival.is_open();
    let meter = CostMeter::start(recorder.waited());
    let (tickets, followers) = follow::open(plan, recorder, live);
    let load = Arc::new(Load {
        purchases: plan.vouchers.iter().map(|id| Purchase::new(&plan.target, *id)).collect(),
        plan: plan.clone(),
        is_open,
        together: arrivals.together(),
        recorder: recorder.clone(),
        live: live.clone(),
        began: live.begin(),
        floor: Mutex::new(ConnectionPool {
            free: connections.into_iter().map(Box::new).collect(),
            waiting: VecDeque::new(),
            closed: None,
        }),
        under_way: TaskTracker::new(),
        tickets,
        given_up: AtomicBool::new(false),
    });
    let _stop = GiveUpOnDrop(load.clone());
    let stopper = {
        let (stop, load) = (stop.clone(), load.clone());
        async move {
            stop.cancelled().await;
            load.given_up.store(true, Ordering::Relaxed);
        }
    };
    let _stopper = AbortOnDropHandle::new(tokio::spawn(stopper));
    if is_open {
        let pacer = load.clone();
        let ended = tokio::task::spawn_blocking(move || pacer.pace(arrivals)).await;
        let ended = ended.map_err(|error| Error::Setup(format!("the pacer ended: {error}")))?;
        ended.map_err(broken)?;
    } else {
        load.floor().closed = Some(arrivals);
        while let Some(flight) = load.start_next() {
            load.spawn(flight);
        }
    }
    load.under_way.close();
    load.under_way.wait().await;
    load.tickets.close();
    followers.finish().await;
    Ok(live.figures(|elapsed| meter.stop(recorder.waited(), elapsed, plan.connections)))
}

/// Ends the load when its future is dropped.
struct GiveUpOnDrop(Arc<Load>);

impl Drop for GiveUpOnDrop {
    fn drop(&mut self) {
        self.0.given_up.store(true, Ordering::Relaxed);
    }
}

struct Load {
    plan: Plan,
    purchases: Vec<Purchase>,
    is_open: bool,
    /// Requests of one arrival.
    together: usize,
    recorder: Recorder,
    live: Arc<LiveFigures>,
    began: Instant,
    floor: Mutex<ConnectionPool>,
    under_way: TaskTracker,
    tickets: Tickets,
    given_up: AtomicBool,
}

/// The connections without work, and the work without connections.
struct ConnectionPool {
    free: VecDeque<Box<Connection>>,
    /// Arrivals of an open loop whose moment has come.
    waiting: VecDeque<Batch>,
    /// All that is left of a closed loop.
    closed: Option<Arrivals>,
}

/// A request that was handed to its connection.
struct SentRequest {
    connection: Box<Connection>,
    batch: Batch,
    number: u32,
    fate: Fate,
    sent: Instant,
}

impl Load {
    fn floor(&self) -> MutexGuard<'_, ConnectionPool> {
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts each arrival of an open loop at its moment.
    fn pace(self: Arc<Self>, mut arrivals: Arrivals) -> std::result::Result<(), TraceError> {
        while let Some(batch) = arrivals.next_batch()? {
            loop {
                if self.given_up.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let early = batch.at.saturating_sub(self.began.elapsed());
                if early.is_zero() {
                    break;
                }
                std::thread::sleep(early.min(PACER_SLICE));
            }
            let mut floor = self.floor();
            if floor.waiting.len() == MAX_WAITING {
                self.live.dropped(batch.size);
                continue;
            }
            floor.waiting.push_back(batch);
            drop(floor);
            match self.start_next() {
                Some(flight) => {
                    // Another one if those before it had to wait.
                    if flight.batch == batch {
                        self.live.started_at_once(flight.sent, self.intended(&flight));
                    }
                    self.spawn(flight);
                }
                None => self.live.waiting(self.floor().waiting.len()),
            }
        }
        Ok(())
    }

    /// Starts the next arrival if there is one and enough connections are free; gives its first
    /// request, and leaves the others to tasks of their own.
    fn start_next(self: &Arc<Self>) -> Option<SentRequest> {
        let (batch, connections) = self.take()?;
        let mut flights = self.launch(batch, connections);
        let first = flights.pop();
        for flight in flights {
            self.spawn(flight);
        }
        first
    }

    #[allow(clippy::vec_box)]
    fn take(&self) -> Option<(Batch, Vec<Box<Connection>>)> {
        let mut floor = self.floor();
        if floor.free.len() < self.together || self.given_up.load(Ordering::Relaxed) {
            return None;
        }
        let batch = if self.is_open {
            let batch = self.next_waiting(&mut floor.waiting);
            self.live.waiting(floor.waiting.len());
            batch?
        } else {
            let over = self.plan.duration.is_some_and(|limit| self.began.elapsed() >= limit);
            // Only a trace can be broken, and a closed loop follows none.
            floor.closed.as_mut().filter(|_| !over)?.next_batch().ok().flatten()?
        };
        Some((batch, floor.free.drain(..self.together).collect()))
    }

    fn next_waiting(&self, waiting: &mut VecDeque<Batch>) -> Option<Batch> {
        let now = self.began.elapsed();
        loop {
            let batch = waiting.pop_front()?;
            if now.saturating_sub(batch.at) <= self.plan.timeout {
                return Some(batch);
            }
            self.live.dropped(batch.size);
        }
    }

    /// Hands each request of an arrival to its connection.
    #[allow(clippy::vec_box)]
    fn launch(&self, batch: Batch, connections: Vec<Box<Connection>>) -> Vec<SentRequest> {
        let user = &self.plan.users[batch.user as usize];
        let purchase = &self.purchases[usize::from(batch.voucher)];
        let start = |(number, mut connection): (u32, Box<Connection>)| {
            let fate = Fate::of(self.plan.seed, number, self.plan.hang_up_share);
            purchase.write(&mut connection, user, self.plan.with_keys.then_some(fate.key));
            let sent = Instant::now();
            self.live.started(batch.user, sent);
            if fate.hang_up.is_none() {
                connection.begin();
            }
            SentRequest { connection, batch, number, fate, sent }
        };
        (self.plan.first_request + batch.first..).zip(connections).map(start).collect()
    }

    fn intended(&self, flight: &SentRequest) -> Instant {
        if self.is_open { self.began + flight.batch.at } else { flight.sent }
    }

    fn spawn(self: &Arc<Self>, flight: SentRequest) {
        let load = self.clone();
        self.under_way.spawn(async move {
            let mut next = Some(flight);
            while let Some(flight) = next {
                let connection = load.land(flight).await;
                load.floor().free.push_back(connection);
                next = load.start_next();
            }
        });
    }

    /// Awaits the answer to a request and tells the history and the live figures. Where that is a
    /// ticket, its end is told by who follows it.
    async fn land(&self, mut flight: SentRequest) -> Box<Connection> {
        let (user, number) = (flight.batch.user, flight.number);
        self.recorder
            .record(Event::Invoke(Invoke {
                t: self.recorder.since(flight.sent),
                n: number,
                u: self.plan.users[user as usize].id,
                v: self.plan.vouchers[usize::from(flight.batch.voucher)],
                k: flight.fate.key,
            }))
            .await;
        let intended = self.intended(&flight);
        let result = match flight.fate.hang_up {
            None => flight.connection.finish().await,
            Some(when) => Err(flight.connection.hang_up(when).await),
        };
        let ended = Instant::now();
        let replica = result.as_ref().ok().and_then(|answer| answer.replica);
        let hold = result.as_ref().ok().and_then(|answer| answer.hold);
        let hold = hold.and_then(|report| report.placed([flight.sent, ended]));
        let hold = hold.map(|hold| hold.told(|moment| self.recorder.since(moment)));
        let reading = match request_result::ticket(&result) {
            None => RequestResult::of(&result),
            Some(ticket) => {
                let (sent, came) = (flight.sent, ended);
                let replica = replica.map(str::to_owned);
                let admitted =
                    AdmittedRequest { ticket, number, user, replica, intended, sent, came };
                let taken = self.tickets.take(admitted);
                if taken != TicketAcceptance::Duplicate {
                    self.live.admitted(came.saturating_duration_since(intended), came);
                }
                match taken {
                    TicketAcceptance::Followed => return flight.connection,
                    TicketAcceptance::NotFollowed => RequestResult::of_ticket(NOT_FOLLOWED),
                    TicketAcceptance::Duplicate => RequestResult::of_ticket(SAME_TICKET),
                }
            }
        };
        self.live.ended(&CompletedRequest {
            user,
            reading: &reading,
            replica,
            intended,
            sent: flight.sent,
            ended,
        });
        let replica = replica.map(str::to_owned);
        let event =
            request_result::event(reading, replica, (self.recorder.since(ended), number), hold);
        self.recorder.record(event).await;
        flight.connection
    }
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
