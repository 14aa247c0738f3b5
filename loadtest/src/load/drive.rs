//! The closed loop: as soon as enough connections are free, the next user sends all requests at
//! once.
//!
//! A user takes `per_user` free connections, hands one request to each of them before awaiting any
//! answer, and gives each connection back when its answer is complete. So while users are left, at
//! least `connections - (per_user - 1)` requests are in flight. Latency is measured from the
//! hand-over.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::api::{self, Voucher};
use crate::error::{Error, Result};
use crate::history::past::key_of;
use crate::judge::evidence::{Names, Record};
use crate::load::client::{Answer, CallError, Connection};
use crate::load::outcome::{Outcome, Problem, classify};
use crate::load::plan::Plan;
use crate::load::tokens::User;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Figures that move while the load runs.
#[derive(Debug, Default)]
pub struct Live {
    outcomes: [AtomicU64; Outcome::ALL.len()],
}

impl Live {
    /// Answers so far with this outcome.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].load(Ordering::Relaxed)
    }

    /// Answers so far.
    pub fn total(&self) -> u64 {
        Outcome::ALL.iter().map(|outcome| self.count(*outcome)).sum()
    }

    fn add(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Everything that happened in one load.
#[derive(Debug)]
pub struct History {
    /// Every request, by user and time.
    pub records: Vec<Record>,
    /// Names that records refer to.
    pub names: Names,
    /// How long the load took, from the first request to the last answer.
    pub elapsed: Duration,
}

/// A short list of names: each is kept once and known by its index.
#[derive(Debug, Default)]
struct Table(Mutex<Vec<String>>);

impl Table {
    /// The index of a name; those that come when 255 are known share the last index.
    fn index(&self, name: &str) -> u8 {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = names.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            if names.len() < usize::from(u8::MAX) {
                names.push(name.to_owned());
            } else if names.len() == usize::from(u8::MAX) {
                names.push("(others)".to_owned());
            }
            names.len() - 1
        });
        u8::try_from(index).unwrap_or(u8::MAX)
    }

    fn list(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What all users of a load share.
struct Shared {
    uri: Uri,
    host: HeaderValue,
    began: Instant,
    live: Arc<Live>,
    replicas: Table,
    codes: Table,
    records: Mutex<Vec<Record>>,
}

/// Opens all connections of a plan by asking each for the voucher, so that the load itself opens
/// none.
pub async fn connect(plan: &Plan) -> Result<(Vec<Connection>, Voucher)> {
    let opened = join_all((0..plan.connections).map(|_| async {
        let mut connection = Connection::new(plan.target.clone(), plan.timeout);
        let voucher = api::voucher(&mut connection, &plan.voucher).await?;
        Ok::<_, api::ApiError>((connection, voucher))
    }))
    .await;
    let mut connections = Vec::with_capacity(plan.connections);
    let mut seen = None;
    for one in opened {
        let (connection, voucher) = one.map_err(|error| Error::Setup(error.to_string()))?;
        connections.push(connection);
        seen = Some(voucher);
    }
    let voucher = seen.ok_or_else(|| Error::Usage("a load needs a connection".to_owned()))?;
    Ok((connections, voucher))
}

/// Runs the load to its end; it is bounded by the plan's requests and their time-out.
pub async fn closed_loop(plan: &Plan, connections: Vec<Connection>, live: Arc<Live>) -> History {
    let uri = format!("/api/vouchers/{}/orders", plan.voucher);
    let shared = Arc::new(Shared {
        uri: uri.parse().unwrap_or_else(|_| Uri::from_static("/")),
        host: plan.target.host(),
        began: Instant::now(),
        live,
        replicas: Table::default(),
        codes: Table::default(),
        records: Mutex::new(Vec::with_capacity(plan.requests())),
    });
    let (give_back, mut free) = mpsc::channel(connections.len().max(1));
    for connection in connections {
        // There is room for every connection.
        let _ = give_back.try_send(connection);
    }
    let bursts = TaskTracker::new();
    for user in plan.users.iter() {
        let mut taken = Vec::with_capacity(plan.per_user);
        for _ in 0..plan.per_user {
            taken.extend(free.recv().await);
        }
        let burst = burst(shared.clone(), user.clone(), taken, give_back.clone());
        bursts.spawn(burst);
    }
    bursts.close();
    bursts.wait().await;
    let mut records =
        std::mem::take(&mut *shared.records.lock().unwrap_or_else(PoisonError::into_inner));
    Record::sort(&mut records);
    History {
        records,
        names: Names { replicas: shared.replicas.list(), codes: shared.codes.list() },
        elapsed: shared.began.elapsed(),
    }
}

/// One user's requests, all at once. Their requests are handed over in the first poll of the joined
/// future.
async fn burst(
    shared: Arc<Shared>,
    user: User,
    connections: Vec<Connection>,
    give_back: mpsc::Sender<Connection>,
) {
    let user = &user;
    join_all(connections.into_iter().map(|mut connection| async {
        let record = shared.purchase(&mut connection, user).await;
        shared.live.add(record.outcome);
        let mut records = shared.records.lock().unwrap_or_else(PoisonError::into_inner);
        let n = u32::try_from(records.len()).unwrap_or(u32::MAX);
        records.push(Record { n, ..record });
        drop(records);
        let _ = give_back.try_send(connection);
    }))
    .await;
}

impl Shared {
    async fn purchase(&self, connection: &mut Connection, user: &User) -> Record {
        let (id, mut key) = (Uuid::new_v4(), [0_u8; uuid::fmt::Hyphenated::LENGTH]);
        id.hyphenated().encode_lower(&mut key);
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(AUTHORIZATION, user.authorization.clone());
        if let Ok(key) = HeaderValue::from_bytes(&key) {
            headers.insert(IDEMPOTENCY_KEY, key);
        }
        let start_ns = nanoseconds(self.began);
        let result = connection.call(request).await;
        let record = self.record(&result, user.id, (start_ns, nanoseconds(self.began)));
        Record { key: key_of(id), ..record }
    }

    fn record(
        &self,
        result: &std::result::Result<Answer, CallError>,
        user: u64,
        (start_ns, end_ns): (u64, u64),
    ) -> Record {
        let (outcome, order_id, code, replica) = match result {
            Ok(answer) => {
                let (outcome, order_id, code) = read(answer);
                (outcome, order_id, self.codes.index(&code), answer.replica.as_ref())
            }
            Err(error) => (Outcome::Unknown, None, self.codes.index(error.code()), None),
        };
        let replica = replica.and_then(|name| name.to_str().ok());
        let replica = replica.map(|name| self.replicas.index(name));
        let order = order_id.and_then(NonZeroU64::new);
        let (n, key, voucher) = (0, 0, 0);
        Record { start_ns, end_ns, user, order, n, key, voucher, outcome, replica, code }
    }
}

/// Outcome, order id, and status with code, of an answer.
fn read(answer: &Answer) -> (Outcome, Option<u64>, String) {
    #[derive(Deserialize)]
    struct Bought {
        order: Id,
    }
    #[derive(Deserialize)]
    struct Id {
        id: String,
    }
    let status = answer.status;
    if status == 201 {
        let bought = serde_json::from_slice::<Bought>(&answer.body).ok();
        let id = bought.and_then(|bought| bought.order.id.parse().ok());
        return (Outcome::Bought, id, "201".to_owned());
    }
    let problem =
        answer.is_problem.then(|| serde_json::from_slice::<Problem>(&answer.body).ok()).flatten();
    let outcome = classify(status, problem.as_ref());
    match problem {
        Some(problem) => {
            let id = problem.order_id.and_then(|id| id.parse().ok());
            (outcome, id, format!("{status} {}", problem.code))
        }
        None => (outcome, None, format!("{status} without a problem document")),
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, is_problem: bool, body: &str) -> Answer {
        Answer { status, replica: None, is_problem, body: Bytes::copy_from_slice(body.as_bytes()) }
    }

    #[test]
    fn the_same_body_counts_only_as_a_problem_document() {
        let sold_out = r#"{"code":"sold_out","status":409}"#;
        assert_eq!(read(&answer(409, true, sold_out)).0, Outcome::SoldOut);
        assert_eq!(read(&answer(409, false, sold_out)).0, Outcome::Unknown);
        assert_eq!(read(&answer(409, true, "<html>")).0, Outcome::Unknown);
    }

    #[test]
    fn ids_are_read_from_orders_and_from_problems() {
        let bought = r#"{"order":{"id":"77","voucher_id":"1"}}"#;
        assert_eq!(read(&answer(201, false, bought)), (Outcome::Bought, Some(77), "201".into()));
        assert_eq!(read(&answer(201, false, "{}")), (Outcome::Bought, None, "201".into()));
        let late = r#"{"code":"outcome_unknown","order_id":"9"}"#;
        let expected = (Outcome::Unknown, Some(9), "504 outcome_unknown".to_owned());
        assert_eq!(read(&answer(504, true, late)), expected);
    }

    #[test]
    fn names_beyond_the_bound_share_one_index() {
        let names = Table::default();
        assert_eq!(names.index("a"), 0);
        assert_eq!(names.index("b"), 1);
        assert_eq!(names.index("a"), 0);
        for number in 0..500 {
            names.index(&number.to_string());
        }
        assert_eq!(names.list().len(), 256);
        assert_eq!(names.index("one more"), 255);
    }
}
