use std::collections::HashMap;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::arrival::Arrival;
use crate::client::Target;
use crate::history::History;
use crate::history::record::Record;
use crate::history_file::HistoryFile;
use crate::mix::Mix;
use crate::outcome::Outcome;
use crate::tokens;

const SOLD_OUT: &str = r#"{"code":"sold_out","status":409}"#;

/// A server that refuses every purchase after `pause`, and not before `opens`.
async fn server(opens: Duration, pause: Duration) -> Arc<Target> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let opens = tokio::time::Instant::now() + opens;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                let length = SOLD_OUT.len();
                let answer = format!(
                    "HTTP/1.1 409 Conflict\r\ncontent-type: application/problem+json\r\n\
                     x-replica: r1\r\ncontent-length: {length}\r\n\r\n{SOLD_OUT}"
                );
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    tokio::time::sleep_until(opens).await;
                    tokio::time::sleep(pause).await;
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Target::parse(&url).expect("a target")
}

fn plan(target: Arc<Target>, users: u32, at_once: usize) -> Plan {
    let lines = (1..=users).map(|id| format!(r#"{{"user_id":"{id}","token":"a"}}"#));
    let users = tokens::parse(&lines.collect::<Vec<_>>().join("\n")).expect("tokens");
    let timeout = Duration::from_secs(20);
    Plan { connections: 8, timeout, ..Plan::closed(target, 1, users.into(), at_once) }
}

async fn carry_out(plan: &Plan) -> (Figures, History) {
    plan.check().expect("a good plan");
    let connect = |_| Connection::new(plan.target.clone(), plan.timeout);
    let connections = (0..plan.connections).map(connect).collect();
    let recorded = HistoryFile::begin(plan, None, &[Some(1)]).expect("a history");
    let live = Arc::new(LiveFigures::new(plan));
    let figures = run(plan, connections, recorded.recorder(), &live).await.expect("run");
    (figures, recorded.end().await.expect("a whole history"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_the_plan_is_sent_once_and_recorded() {
    let target = server(Duration::ZERO, Duration::ZERO).await;
    let (figures, history) = carry_out(&plan(target, 200, 3)).await;
    assert_eq!((figures.requests, figures.users), (600, 200));
    assert_eq!(figures.count(Outcome::SoldOut), 600);
    assert_eq!(figures.codes["409 sold_out"], 600);
    assert_eq!(figures.replicas["r1"].answers, 600);
    assert!(figures.in_flight_peak <= 8, "{}", figures.in_flight_peak);
    assert_eq!(figures.simultaneous_min, 3, "a user's requests leave together");
    let mut numbers: Vec<u32> = history.records.iter().map(|record| record.n).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..600).collect::<Vec<_>>());
    assert!(history.records.iter().all(|record| record.outcome == Outcome::SoldOut));
    let keys: std::collections::HashSet<u32> = history.records.iter().map(|one| one.key).collect();
    assert!(keys.len() > 590, "keys of their own: {}", keys.len());
}

/// The latency that most requests have, in the two ways of counting it.
async fn through_a_stall(arrival: Arrival) -> Figures {
    let target = server(Duration::from_millis(1500), Duration::ZERO).await;
    let duration = Some(Duration::from_secs(2));
    let mix = Mix::AfterSoldOut;
    carry_out(&Plan { arrival, mix, duration, connections: 2, ..plan(target, 10, 1) }).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_delays_every_request_that_was_due_in_it() {
    let open = through_a_stall(Arrival::Constant(100.0)).await;
    // Three quarters of the 200 come while the server stalls, and wait 750 ms on average.
    assert_eq!(open.requests, 200);
    assert!(open.all.p50_ms > 400.0, "{:?}", open.all);
    assert!(open.from_sending.p50_ms < open.all.p50_ms / 2.0, "from the sending: it is hidden");
    assert!(open.cost.waiting_peak > 100, "{}", open.cost.waiting_peak);
    assert_eq!(open.cost.dropped, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waited_longer_than_its_timeout_is_counted_as_not_sent() {
    let target = server(Duration::ZERO, Duration::from_millis(900)).await;
    let (arrival, mix) = (Arrival::Constant(20.0), Mix::AfterSoldOut);
    let plan = plan(target, 10, 1);
    let timeout = Duration::from_secs(1);
    let duration = Some(Duration::from_secs(2));
    let plan = Plan { arrival, mix, timeout, duration, connections: 1, ..plan };
    let (figures, history) = carry_out(&plan).await;
    assert!(figures.cost.dropped > 0, "one connection cannot do it");
    assert_eq!(figures.requests + figures.cost.dropped, 40, "each is sent or counted");
    assert_eq!(history.records.len() as u64, figures.requests);
}

/// A server that gives each purchase a ticket, and ends none before it has given `ends_after`. Each
/// ticket then ends with an order of its number; the first ticket never ends.
async fn ticket_server(ends_after: usize) -> Arc<Target> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let given = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let given = given.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                loop {
                    let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
                    let asked = String::from_utf8_lossy(&buffer[..read]).into_owned();
                    let path = asked.split(' ').nth(1).unwrap_or_default();
                    let (status, ticket, state) = match path.strip_prefix("/api/tickets/") {
                        None => {
                            let number = given.fetch_add(1, Ordering::SeqCst) + 1;
                            (202, uuid::Uuid::from_u128(number as u128), r#""pending""#.to_owned())
                        }
                        Some(ticket) => {
                            let ticket: uuid::Uuid = ticket.parse().expect("a ticket");
                            let number = ticket.as_u128();
                            let is_over = given.load(Ordering::SeqCst) >= ends_after && number > 1;
                            let bought = format!(r#""bought","order_id":"{number}""#);
                            (200, ticket, if is_over { bought } else { r#""pending""#.to_owned() })
                        }
                    };
                    let body = format!(r#"{{"ticket":{{"id":"{ticket}","status":{state}}}}}"#);
                    let length = body.len();
                    let answer =
                        format!("HTTP/1.1 {status} Fine\r\ncontent-length: {length}\r\n\r\n{body}");
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Target::parse(&url).expect("a target")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_leaves_its_connection_to_others_and_is_followed_to_its_end_or_its_deadline() {
    const USERS: u32 = 100;
    let target = ticket_server(USERS as usize).await;
    // All but the first ticket end far before, even if the machine stands still for seconds.
    let ticket_timeout = Duration::from_secs(10);
    let plan = Plan { connections: 4, ticket_timeout, ..plan(target, USERS, 1) };
    let (figures, history) = carry_out(&plan).await;
    let queued = figures.queued.as_ref().expect("tickets");
    assert_eq!((figures.requests, queued.admitted), (100, 100));
    assert_eq!(figures.count(Outcome::Bought), 99, "{:?}", figures.codes);
    assert_eq!(figures.codes["202 ticket_pending"], 1, "the first one never ends");
    assert!(figures.in_flight_peak > 50, "in flight to its end: {}", figures.in_flight_peak);
    assert!(queued.admission.max_ms < figures.all.max_ms);
    let [last_sent, first_ended] = [
        history.records.iter().map(|one| one.start_ns).max(),
        history.records.iter().map(|one| one.end_ns).min(),
    ];
    assert!(first_ended > last_sent, "no request ends with its 202");
    let admitted = history.records.iter().filter(|one| one.admitted && one.order.is_some());
    assert_eq!(admitted.count(), 99);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_arrival_leaves_before_its_moment() {
    let target = server(Duration::ZERO, Duration::ZERO).await;
    let arrival = Arrival::Poisson(200.0);
    let plan = Plan { arrival, ..plan(target, 100, 1) };
    let (figures, history) = carry_out(&plan).await;
    assert_eq!(figures.requests, 100);
    assert!(figures.cost.lateness.count > 0, "some found a connection free");
    let mut arrivals = Arrivals::new(&plan).expect("no trace");
    let planned = std::iter::from_fn(|| arrivals.next_batch().expect("no trace"));
    let planned: HashMap<u32, Duration> = planned.map(|batch| (batch.first, batch.at)).collect();
    // The load begins a moment after the history's header.
    for Record { n, start_ns, .. } in &history.records {
        assert!(Duration::from_nanos(*start_ns) >= planned[n], "request {n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hang_ups_are_unknown_and_the_load_continues() {
    let target = server(Duration::ZERO, Duration::ZERO).await;
    let plan = Plan { hang_up_share: 0.3, seed: 7, ..plan(target, 300, 1) };
    let hang_ups = (0..300).filter(|n| Fate::of(7, *n, 0.3).hang_up.is_some()).count() as u64;
    let (figures, history) = carry_out(&plan).await;
    assert_eq!(figures.codes["hung_up"], hang_ups);
    assert_eq!(figures.count(Outcome::Unknown), hang_ups);
    assert_eq!(figures.count(Outcome::SoldOut), 300 - hang_ups);
    assert_eq!(history.records.len(), 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_whose_future_is_dropped_stops() {
    let target = server(Duration::ZERO, Duration::from_millis(5)).await;
    let mix = Mix::AfterSoldOut;
    let plan = Plan { mix, duration: Some(Duration::from_mins(10)), ..plan(target, 10, 1) };
    let live = Arc::new(LiveFigures::new(&plan));
    let recorded = HistoryFile::begin(&plan, None, &[None]).expect("a history");
    let connect = |_| Connection::new(plan.target.clone(), plan.timeout);
    let connections: Vec<_> = (0..plan.connections).map(connect).collect();
    let load = run(&plan, connections, recorded.recorder(), &live);
    let seen = async {
        while live.snapshot().total() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = load => panic!("it has ten minutes to go"),
        () = seen => {}
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while Arc::strong_count(&live) > 1 {
        assert!(Instant::now() < deadline, "its tasks go on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
