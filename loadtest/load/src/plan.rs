//! A load as it is asked for, its bounds, and the arrivals that follow from it and its seed.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use loadtest_measure::error::{Error, Result};

use crate::arrival::{Arrival, FLASH_FACTOR, Schedule};
use crate::client::Target;
use crate::mix::{Mix, Users, Vouchers};
use crate::tokens::User;
use crate::trace::{Trace, TraceError, TraceLine};

/// Most requests one load may have: the judge keeps 48 bytes of each when it reads the history.
pub const MAX_REQUESTS: usize = 10_000_000;
/// Most connections one load may open.
pub const MAX_CONNECTIONS: usize = 4096;
/// Most simultaneous requests of one user.
pub const MAX_PER_USER: usize = 16;
/// Most vouchers of one load.
pub const MAX_VOUCHERS: usize = 64;
/// Most arrivals a second, the raised rate of a flash included.
pub const MAX_RATE: f64 = 1_000_000.0;
/// Longest load.
pub const MAX_DURATION: Duration = Duration::from_hours(24);
/// Steepest slope of the vouchers' shares.
const MAX_ZIPF: f64 = 10.0;

/// One load.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where the requests go.
    pub target: Arc<Target>,
    /// The vouchers' ids, the most wanted first.
    pub vouchers: Vec<u64>,
    /// How unequal their shares are: the i-th has `1 / i^zipf`; 0 is all alike.
    pub zipf: f64,
    /// The users who want them.
    pub users: Arc<[User]>,
    /// How users take part. A trace has its own users.
    pub mix: Mix,
    /// When requests leave.
    pub arrival: Arrival,
    /// Connections that are kept busy by a closed loop, and how many an open loop has at most.
    pub connections: usize,
    /// When a request without an answer is given up, and one that has waited for a connection.
    pub timeout: Duration,
    /// When a ticket that has not ended is given up, counted from when it came. With zero none is
    /// followed, and its outcome is unknown.
    pub ticket_timeout: Duration,
    /// No arrival comes later than this.
    pub duration: Option<Duration>,
    /// Most requests of the load.
    pub requests: Option<usize>,
    /// Number of the first request in the history, where several loads share one.
    pub first_request: u32,
    /// The part of the clients that hang up, 0 to 1.
    pub hang_up_share: f64,
    /// Whether requests have an `Idempotency-Key`, which the service keeps with the order.
    pub with_keys: bool,
    /// What all random choices come from.
    pub seed: u64,
}

fn wrong<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Usage(text.into()))
}

impl Plan {
    /// A closed loop in which each user sends `requests` simultaneous requests for the voucher.
    pub fn closed(target: Arc<Target>, voucher: u64, users: Arc<[User]>, at_once: usize) -> Self {
        Self {
            target,
            vouchers: vec![voucher],
            zipf: 0.0,
            users,
            mix: Mix::EachUser { requests: at_once },
            arrival: Arrival::Closed,
            connections: at_once,
            timeout: Duration::from_secs(40),
            ticket_timeout: Duration::from_secs(40),
            duration: None,
            requests: None,
            first_request: 0,
            hang_up_share: 0.0,
            with_keys: true,
            seed: 0,
        }
    }

    /// Checks the bounds, and a trace from its first line to its last; errors name the flag.
    pub fn check(&self) -> Result<()> {
        self.check_size()?;
        self.check_vouchers()?;
        if !(0.0..=1.0).contains(&self.hang_up_share) {
            return wrong("--hang-up-share must be 0 to 1");
        }
        if self.duration.is_some_and(|duration| duration.is_zero() || duration > MAX_DURATION) {
            return wrong(format!("--duration must be above 0 and at most {MAX_DURATION:?}"));
        }
        self.check_arrival()
    }

    fn check_size(&self) -> Result<()> {
        let per_user = self.mix.together();
        if !(1..=MAX_PER_USER).contains(&per_user) {
            return wrong(format!("--requests-per-user must be 1 to {MAX_PER_USER}"));
        }
        if self.connections < per_user || self.connections > MAX_CONNECTIONS {
            return wrong(format!(
                "--connections must be {per_user} (one user's requests) to {MAX_CONNECTIONS}"
            ));
        }
        if self.users.is_empty() {
            return wrong("there are no users");
        }
        let requests = self.requests.or(self.known_requests()).unwrap_or_default();
        if requests > MAX_REQUESTS || self.requests == Some(0) {
            return wrong(format!(
                "{requests} requests are not 1 to {MAX_REQUESTS}, which a load may have \
                 (--requests, --users, --requests-per-user)"
            ));
        }
        if self.timeout.is_zero() {
            return wrong("--timeout-s must be at least 1");
        }
        Ok(())
    }

    fn check_vouchers(&self) -> Result<()> {
        if !(1..=MAX_VOUCHERS).contains(&self.vouchers.len()) {
            return wrong(format!("--voucher must name 1 to {MAX_VOUCHERS} vouchers"));
        }
        let mut once = self.vouchers.clone();
        once.sort_unstable();
        once.dedup();
        if once.len() < self.vouchers.len() {
            return wrong("--voucher names one voucher twice");
        }
        if !(0.0..=MAX_ZIPF).contains(&self.zipf) {
            return wrong(format!("--zipf must be 0 to {MAX_ZIPF}"));
        }
        Ok(())
    }

    #[allow(clippy::cast_precision_loss)]
    fn check_arrival(&self) -> Result<()> {
        let rate = match self.arrival {
            Arrival::Constant(rate) | Arrival::Poisson(rate) => rate,
            Arrival::Flash { rate, .. } => rate * FLASH_FACTOR,
            Arrival::Closed => 1.0,
            Arrival::Trace(_) => return self.check_trace(),
        };
        // Not a number is out of bounds as well.
        if !(rate > 0.0 && rate <= MAX_RATE) {
            return wrong(format!(
                "--rate must be above 0 and at most {MAX_RATE} arrivals a second, in a flash \
                 {} before it",
                MAX_RATE / FLASH_FACTOR
            ));
        }
        match (self.mix, self.requests, self.duration) {
            (Mix::AfterSoldOut, None, None) => {
                wrong("--mix sold-out needs --requests or --duration, or it has no end")
            }
            (Mix::AfterSoldOut, None, Some(duration)) => {
                let expected = self.arrival.expected(duration).unwrap_or_default();
                if expected > MAX_REQUESTS as f64 {
                    return wrong(format!(
                        "--rate and --duration make about {expected:.0} requests, and a load may \
                         have {MAX_REQUESTS} (--requests ends it earlier)"
                    ));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_trace(&self) -> Result<()> {
        let usage = |error: TraceError| Error::Usage(error.to_string());
        let mut arrivals = Arrivals::new(self).map_err(usage)?;
        let mut last = None;
        while let Some(batch) = arrivals.next_batch().map_err(usage)? {
            last = Some(batch);
        }
        if last.is_none() {
            return wrong("the --trace has no arrivals");
        }
        if self.requests.is_none() && arrivals.has_more().map_err(usage)? {
            return wrong(format!(
                "the --trace has more than the {MAX_REQUESTS} arrivals that a load may have \
                 (--requests or --duration ends it earlier)"
            ));
        }
        Ok(())
    }

    /// Whether the load ended at its bound of requests before its time was over.
    pub fn was_cut_off(&self, requests: u64) -> bool {
        self.requests.is_none()
            && self.known_requests().is_none()
            && requests >= u64::try_from(MAX_REQUESTS).unwrap_or(u64::MAX)
    }

    /// What the header of a history says of it.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let mix = match self.mix {
            Mix::EachUser { requests } => format!("each user once, {requests} requests at once"),
            Mix::AfterSoldOut => "any user again and again".to_owned(),
        };
        let mut settings = vec![
            ("arrival", self.arrival.to_string()),
            ("mix", mix),
            ("connections", self.connections.to_string()),
            ("timeout_s", self.timeout.as_secs_f64().to_string()),
            ("hang_up_share", self.hang_up_share.to_string()),
            ("zipf", self.zipf.to_string()),
        ];
        let duration = self.duration.map(|limit| ("duration_s", limit.as_secs_f64().to_string()));
        let requests = self.requests.map(|limit| ("requests", limit.to_string()));
        settings.extend(duration.into_iter().chain(requests));
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Requests in total, if that is known before.
    pub fn known_requests(&self) -> Option<usize> {
        let each = match (self.mix, &self.arrival) {
            (_, Arrival::Trace(_)) | (Mix::AfterSoldOut, _) => None,
            (Mix::EachUser { requests }, _) => Some(self.users.len().saturating_mul(requests)),
        };
        match (each, self.requests) {
            (Some(each), Some(limit)) => Some(each.min(limit)),
            (each, limit) => each.or(limit),
        }
    }
}

/// The requests of one arrival: as many as [`Mix::together`], for one voucher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// When they are due; zero in a closed loop.
    pub at: Duration,
    /// Index of the user.
    pub user: u32,
    /// Index of the voucher.
    pub voucher: u16,
    /// Number of the first request; the others follow.
    pub first: u32,
    /// How many.
    pub size: u8,
}

/// An arrival: when, and who and what if that is not drawn.
struct Call {
    at: Duration,
    user: Option<u32>,
    voucher: Option<usize>,
}

type TraceResult<T> = std::result::Result<T, TraceError>;

/// All arrivals of a plan, one after the other.
#[derive(Debug)]
pub struct Arrivals {
    schedule: Schedule,
    trace: Option<Box<TraceArrivals>>,
    users: Users,
    vouchers: Vouchers,
    together: u8,
    next: u32,
    limit: u32,
    until: Duration,
}

impl Arrivals {
    /// From the first one on.
    pub fn new(plan: &Plan) -> TraceResult<Self> {
        let count = u32::try_from(plan.users.len()).unwrap_or(u32::MAX);
        let (mix, trace) = match &plan.arrival {
            Arrival::Trace(path) => {
                (Mix::AfterSoldOut, Some(Box::new(TraceArrivals::open(path, plan)?)))
            }
            _ => (plan.mix, None),
        };
        let limit = plan.requests.unwrap_or(MAX_REQUESTS).min(MAX_REQUESTS);
        Ok(Self {
            schedule: Schedule::new(&plan.arrival, plan.seed),
            trace,
            users: Users::new(mix, count, plan.seed),
            vouchers: Vouchers::new(plan.vouchers.len(), plan.zipf, plan.seed),
            together: u8::try_from(mix.together()).unwrap_or(u8::MAX),
            next: 0,
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
            until: plan.duration.unwrap_or(MAX_DURATION),
        })
    }

    /// Requests of one arrival.
    pub fn together(&self) -> usize {
        usize::from(self.together)
    }

    /// Whether a trace continues after the last arrival that a load may have.
    fn has_more(&mut self) -> TraceResult<bool> {
        if self.next < self.limit {
            return Ok(false);
        }
        let Some(trace) = &mut self.trace else { return Ok(false) };
        Ok(trace.next_call()?.is_some_and(|call| call.at < self.until))
    }

    /// The next arrival; `None` after the last one.
    pub fn next_batch(&mut self) -> TraceResult<Option<Batch>> {
        let size = self.together;
        if self.limit - self.next < u32::from(size) {
            return Ok(None);
        }
        let call = match &mut self.trace {
            Some(trace) => trace.next_call()?,
            None => Some(Call { at: self.schedule.next_at(), user: None, voucher: None }),
        };
        let Some(Call { at, user, voucher }) = call.filter(|call| call.at < self.until) else {
            return Ok(None);
        };
        let Some(user) = user.or_else(|| self.users.draw()) else { return Ok(None) };
        let voucher = voucher.unwrap_or_else(|| self.vouchers.draw());
        let first = self.next;
        self.next += u32::from(size);
        let voucher = u16::try_from(voucher).unwrap_or(u16::MAX);
        Ok(Some(Batch { at, user, voucher, first, size }))
    }
}

/// A trace, and the indexes of those whom it may name.
#[derive(Debug)]
struct TraceArrivals {
    trace: Trace,
    users: HashMap<u64, u32>,
    vouchers: Vec<u64>,
}

impl TraceArrivals {
    fn open(path: &Path, plan: &Plan) -> TraceResult<Self> {
        let users = (0..).zip(plan.users.iter()).map(|(index, user)| (user.id, index)).collect();
        Ok(Self { trace: Trace::open(path)?, users, vouchers: plan.vouchers.clone() })
    }

    fn next_call(&mut self) -> TraceResult<Option<Call>> {
        let Some(TraceLine { at, user, voucher }) = self.trace.next_line()? else {
            return Ok(None);
        };
        let fault = |what: String| self.trace.error_here(&what);
        let unknown_user = |id| fault(format!("names user {id}, who is not in the token file"));
        let user = user.map(|id| self.users.get(&id).copied().ok_or_else(|| unknown_user(id)));
        let unknown = |id| fault(format!("names voucher {id}, which --voucher does not"));
        let voucher = voucher.map(|id| {
            self.vouchers.iter().position(|known| *known == id).ok_or_else(|| unknown(id))
        });
        Ok(Some(Call { at, user: user.transpose()?, voucher: voucher.transpose()? }))
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
