//! What a load has come to so far: counters and histograms, however long it runs.
//!
//! Besides the names of replicas and codes, of which at most 256 are distinguished, only a pair of
//! bytes for each user of the load is kept.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cost::Cost;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::request_result::RequestResult;
use crate::stats::{AdmissionFigures, Figures, Latencies, ReplicaShare, ratio, whole};

/// Most names of replicas, or codes, distinguished; further ones share the last.
const MAX_NAMES: usize = 256;

/// A request that has ended.
pub(super) struct CompletedRequest<'a> {
    pub(super) user: u32,
    pub(super) reading: &'a RequestResult,
    pub(super) replica: Option<&'a str>,
    /// When it was due; in a closed loop when it left.
    pub(super) intended: Instant,
    pub(super) sent: Instant,
    pub(super) ended: Instant,
}

/// Live figures of one load, shared by all who execute it.
#[derive(Debug)]
pub struct LiveFigures {
    began: Mutex<Option<Instant>>,
    tally: Mutex<Tally>,
}

/// What a person is shown while the load runs.
#[derive(Debug, Clone, Default)]
pub struct LiveSnapshot {
    /// How often each outcome came, in the order of [`Outcome::ALL`].
    pub counts: [u64; Outcome::ALL.len()],
    /// Half of the requests took no longer, in milliseconds.
    pub p50_ms: f64,
    /// 99 % took no longer.
    pub p99_ms: f64,
    /// Arrivals that wait for a connection.
    pub waiting: usize,
    /// Units left, as the public sees.
    pub stock: Option<i64>,
}

impl LiveSnapshot {
    /// Answers, and requests given up.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How often that outcome came.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.counts[outcome as usize]
    }
}

impl LiveFigures {
    /// The figures of a load that has not begun.
    pub fn new(plan: &Plan) -> Self {
        let tally = Tally::new(plan.users.len(), plan.connections);
        Self { began: Mutex::default(), tally: Mutex::new(tally) }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The load begins now.
    pub(super) fn begin(&self) -> Instant {
        let now = Instant::now();
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        self.tally().zero = now;
        now
    }

    /// When it began, if it has.
    pub fn began(&self) -> Option<Instant> {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn started(&self, user: u32, now: Instant) {
        self.tally().start(user, now);
    }

    /// An arrival of an open loop found connections free.
    pub(super) fn started_at_once(&self, sent: Instant, intended: Instant) {
        self.tally().lateness.record(sent.saturating_duration_since(intended));
    }

    /// Sets the number of arrivals that wait for connections.
    pub(super) fn waiting(&self, arrivals: usize) {
        let mut tally = self.tally();
        tally.waiting = arrivals;
        tally.waiting_peak = tally.waiting_peak.max(arrivals);
    }

    /// Counts requests that were never sent.
    pub(super) fn dropped(&self, requests: u8) {
        self.tally().dropped += u64::from(requests);
    }

    /// A request was answered with a ticket, so long after it was due. It is in flight until
    /// the ticket has ended.
    pub(super) fn admitted(&self, after: Duration, now: Instant) {
        self.tally().admit(after, now);
    }

    pub(super) fn ended(&self, seen: &CompletedRequest<'_>) {
        self.tally().end(seen);
    }

    /// Sets the stock that the public sees.
    pub fn set_stock(&self, left: Option<i64>) {
        self.tally().stock = left;
    }

    /// Requests without an answer so far.
    pub fn in_flight(&self) -> u64 {
        self.tally().flow.now
    }

    /// Counts again, and from now on only requests whose moment is still to come: those that were
    /// delayed until now say nothing about what is served from now on.
    pub fn restart_counting(&self) {
        self.tally().count_from(Instant::now());
    }

    /// Answers that decided something, of the requests that count.
    pub fn decided(&self) -> u64 {
        self.tally().decided
    }

    /// The current figures.
    pub fn snapshot(&self) -> LiveSnapshot {
        let tally = self.tally();
        let all = tally.all().summary();
        let counts = Outcome::ALL.map(|outcome| tally.by_outcome[outcome as usize].len());
        let (waiting, stock) = (tally.waiting, tally.stock);
        LiveSnapshot { counts, p50_ms: all.p50_ms, p99_ms: all.p99_ms, waiting, stock }
    }

    /// All figures; `cost` gets the length of the load.
    pub(super) fn figures(&self, cost: impl FnOnce(Duration) -> Cost) -> Figures {
        let tally = self.tally();
        let elapsed = tally.last_end.saturating_sub(tally.first_start.unwrap_or_default());
        let mut cost = cost(elapsed);
        cost.lateness = tally.lateness.summary();
        cost.waiting_peak = tally.waiting_peak;
        cost.dropped = tally.dropped;
        tally.figures(elapsed, cost)
    }
}

#[derive(Debug)]
struct Tally {
    zero: Instant,
    connections: u64,
    by_outcome: [Latencies; Outcome::ALL.len()],
    /// From the sending, where `by_outcome` counts from the intended moment.
    from_sending: Latencies,
    lateness: Latencies,
    admissions: Latencies,
    last_admission: Duration,
    codes: Vec<((Option<u16>, String), u64)>,
    replicas: Vec<(String, u64)>,
    /// Requests of each user in flight, now and at most.
    users: Vec<(u8, u8)>,
    starts: u64,
    first_start: Option<Duration>,
    last_end: Duration,
    last_order: Duration,
    flow: InFlightGauge,
    waiting: usize,
    waiting_peak: usize,
    dropped: u64,
    stock: Option<i64>,
    /// Answers that decided something, of requests that were due from that moment on.
    decided: u64,
    counted_from: Option<Instant>,
}

/// Requests in flight, and their sum over time.
#[derive(Debug, Default)]
struct InFlightGauge {
    now: u64,
    peak: u64,
    at: Duration,
    area: f64,
    /// Moment and sum when the load became full.
    full: Option<(Duration, f64)>,
    /// Moment and sum of the last start.
    last: (Duration, f64),
}

impl InFlightGauge {
    /// Events of several threads may come out of order by less than it takes to record them.
    fn advance(&mut self, to: Duration) {
        self.area += whole(self.now) * to.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(to);
    }

    fn mean_while_full(&self) -> f64 {
        let Some((from, area)) = self.full else { return 0.0 };
        ratio(self.last.1 - area, self.last.0.saturating_sub(from).as_secs_f64())
    }
}

impl Tally {
    fn new(users: usize, connections: usize) -> Self {
        Self {
            zero: Instant::now(),
            connections: connections as u64,
            by_outcome: std::array::from_fn(|_| Latencies::new()),
            from_sending: Latencies::new(),
            lateness: Latencies::new(),
            admissions: Latencies::new(),
            last_admission: Duration::ZERO,
            codes: Vec::new(),
            replicas: Vec::new(),
            users: vec![(0, 0); users],
            starts: 0,
            first_start: None,
            last_end: Duration::ZERO,
            last_order: Duration::ZERO,
            flow: InFlightGauge::default(),
            waiting: 0,
            waiting_peak: 0,
            dropped: 0,
            stock: None,
            decided: 0,
            counted_from: None,
        }
    }

    fn start(&mut self, user: u32, now: Instant) {
        let at = now.saturating_duration_since(self.zero);
        self.first_start.get_or_insert(at);
        self.flow.advance(at);
        if self.starts == self.connections {
            self.flow.full = Some((self.flow.at, self.flow.area));
        }
        self.flow.last = (self.flow.at, self.flow.area);
        self.starts += 1;
        self.flow.now += 1;
        self.flow.peak = self.flow.peak.max(self.flow.now);
        if let Some((now, most)) = self.users.get_mut(user as usize) {
            *now = now.saturating_add(1);
            *most = (*most).max(*now);
        }
    }

    fn count_from(&mut self, moment: Instant) {
        (self.counted_from, self.decided) = (Some(moment), 0);
    }

    fn admit(&mut self, after: Duration, now: Instant) {
        self.admissions.record(after);
        let at = now.saturating_duration_since(self.zero);
        self.last_admission = self.last_admission.max(at);
    }

    fn queued(&self) -> Option<AdmissionFigures> {
        let admitted = self.admissions.len();
        let admitting = self.last_admission.saturating_sub(self.first_start.unwrap_or_default());
        let admitting_s = admitting.as_secs_f64();
        (admitted > 0).then(|| AdmissionFigures {
            admitted,
            admitting_s,
            admitted_per_s: ratio(whole(admitted), admitting_s),
            admission: self.admissions.summary(),
        })
    }

    fn end(&mut self, seen: &CompletedRequest<'_>) {
        let CompletedRequest { user, reading, replica, intended, sent, ended } = seen;
        let at = ended.saturating_duration_since(self.zero);
        self.flow.advance(at);
        self.flow.now = self.flow.now.saturating_sub(1);
        self.last_end = self.last_end.max(at);
        if reading.outcome == Outcome::Bought {
            self.last_order = self.last_order.max(at);
        }
        if let Some((now, _)) = self.users.get_mut(*user as usize) {
            *now = now.saturating_sub(1);
        }
        self.by_outcome[reading.outcome as usize]
            .record(ended.saturating_duration_since(*intended));
        let counts = self.counted_from.is_none_or(|from| *intended >= from);
        self.decided += u64::from(counts && reading.outcome.decides());
        self.from_sending.record(ended.saturating_duration_since(*sent));
        let code = reading.code.as_deref().unwrap_or_default();
        let same = |known: &(Option<u16>, String)| known.0 == reading.status && known.1 == code;
        count(&mut self.codes, same, || (reading.status, code.to_owned()));
        if let Some(name) = replica {
            count(&mut self.replicas, |known| known == name, || (*name).to_owned());
        }
    }

    fn all(&self) -> Latencies {
        let mut all = Latencies::new();
        for one in &self.by_outcome {
            all.add(one);
        }
        all
    }

    fn figures(&self, elapsed: Duration, cost: Cost) -> Figures {
        let elapsed_s = elapsed.as_secs_f64();
        let orders = self.by_outcome[Outcome::Bought as usize].len();
        let selling = self.last_order.saturating_sub(self.first_start.unwrap_or_default());
        let took_part =
            self.users.iter().map(|(_, most)| u64::from(*most)).filter(|most| *most > 0);
        let share =
            |answers| ReplicaShare { answers, share: ratio(whole(answers), whole(self.starts)) };
        let code = |((status, code), count): &((Option<u16>, String), u64)| {
            let status = status.map(|status| status.to_string());
            let words = [status.as_deref().unwrap_or_default(), code.as_str()];
            (words.join(" ").trim().to_owned(), *count)
        };
        Figures {
            requests: self.starts,
            users: took_part.clone().count() as u64,
            elapsed_s,
            requests_per_s: ratio(whole(self.starts), elapsed_s),
            orders_per_s: ratio(whole(orders), selling.as_secs_f64()),
            queued: self.queued(),
            all: self.all().summary(),
            from_sending: self.from_sending.summary(),
            outcomes: Outcome::ALL
                .map(|outcome| (outcome, self.by_outcome[outcome as usize].summary()))
                .into(),
            curves: Outcome::ALL
                .map(|outcome| (outcome, self.by_outcome[outcome as usize].curve()))
                .into_iter()
                .filter(|(_, curve)| !curve.is_empty())
                .collect(),
            codes: self.codes.iter().map(code).collect(),
            replicas: self
                .replicas
                .iter()
                .map(|(name, answers)| (name.clone(), share(*answers)))
                .collect(),
            in_flight_mean: self.flow.mean_while_full(),
            in_flight_peak: self.flow.peak,
            simultaneous_min: took_part.min().unwrap_or(0),
            cost,
        }
    }
}

fn count<T>(known: &mut Vec<(T, u64)>, same: impl Fn(&T) -> bool, new: impl Fn() -> T) {
    let place = known.iter().position(|(name, _)| same(name));
    match place.or((known.len() == MAX_NAMES).then_some(MAX_NAMES - 1)) {
        Some(place) => known[place].1 += 1,
        None => known.push((new(), 1)),
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
