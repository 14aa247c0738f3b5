//! Each change of a voucher leaves its line in the audit trail, also if its client hangs up early
//! or the answer to its COMMIT is lost.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use reqwest::Method;
use seckill::domain::Role;
use serde_json::json;
use sqlx::{Connection, MySqlConnection};
use testbed::{Action, Command, Replica, Times};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

use crate::breakable::blocking;
use crate::caller::Caller;
use crate::fleet::start_together;
use crate::replicas::spec;
use crate::support::{Place, eventually, token};
use crate::wire;

const STOCK: u32 = 100;
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Clients that hang up, the first 30 of them after 0 to 29 ms, the next ones after up to a second.
const MAX_CLIENTS: u64 = 900;
/// The fewest grants that make the test worth something.
const WANTED_GRANTS: usize = 11;

/// The lines of that voucher's grants.
fn lines(replica: &Replica, voucher: &str) -> Vec<String> {
    let log = fs::read_to_string(replica.log_path()).expect("the log");
    let voucher = format!("voucher={voucher} ");
    let of_grant = |line: &&str| {
        line.contains(" audit: ")
            && line.contains(r#"action="add_stock""#)
            && line.contains(&voucher)
    };
    log.lines().filter(of_grant).map(str::to_owned).collect()
}

/// The stock that a line names as `before` or `after`.
fn stock(line: &str, name: &str) -> u32 {
    let line = line.replace('\\', "");
    let rest = line.split_once(&format!("{name}=\"{{")).expect("the voucher").1;
    let rest = rest.split_once("\"stock\":").expect("the stock").1;
    rest.split(|end: char| !end.is_ascii_digit()).next().unwrap().parse().expect("a number")
}

/// The grants in the database, without that of the voucher's first units.
async fn grants(place: &Place, voucher: &str) -> usize {
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let query = "SELECT COUNT(*) FROM stock_grants WHERE voucher_id = ?";
    let count = sqlx::query_scalar::<_, i64>(query).bind(voucher).fetch_one(&mut database);
    usize::try_from(count.await.expect("a count")).expect("a count") - 1
}

async fn grant_and_go(url: &str, voucher: &str, after: Duration) {
    let body = r#"{"units":1}"#;
    let request = format!(
        "POST /api/admin/vouchers/{voucher}/stock HTTP/1.1\r\nHost: test\r\n\
         Authorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        token(9, Role::Admin),
        body.len()
    );
    let mut stream = wire::connect(url).await;
    stream.write_all(request.as_bytes()).await.expect("sent");
    // The moment of the hang-up is what varies; nothing is waited for.
    tokio::time::sleep(after).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_early_leaves_as_many_lines_as_grants() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let replicas = blocking(|| Ok(start_together([spec(&place, "trail", &[])])));
    let replica = &replicas[0];
    let voucher = Caller::new(replica.base_url()).voucher(STOCK).await;
    let mut clients = JoinSet::new();
    for number in 0..MAX_CLIENTS {
        let (url, of) = (replica.base_url().to_owned(), voucher.clone());
        let after = Duration::from_millis((number % 30) * (number / 30 + 1));
        clients.spawn(async move { grant_and_go(&url, &of, after).await });
        if clients.len() == 6 {
            clients.join_next().await.expect("a client").expect("no panic");
        }
        if number % 30 == 29 && grants(&place, &voucher).await >= WANTED_GRANTS {
            break;
        }
    }
    clients.join_all().await;
    // After its orderly stop no change is in the middle.
    let status = blocking(|| replica.stop(STOP_LIMIT));
    assert!(status.success(), "{status}");
    let written = grants(&place, &voucher).await;
    let lines = lines(replica, &voucher);
    assert_eq!(lines.len(), written, "{lines:#?}");
    assert!(written >= WANTED_GRANTS, "{written} grants of {MAX_CLIENTS} clients");
    for line in &lines {
        assert_eq!(stock(line, "after"), stock(line, "before") + 1, "{line}");
        assert!(line.contains(r#"outcome="done""#), "{line}");
    }
    let after: BTreeSet<_> = lines.iter().map(|line| stock(line, "after")).collect();
    let expected = (STOCK + 1..).take(written).collect();
    assert_eq!(after, expected, "each grant has values of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_commit_got_no_answer_has_an_unknown_outcome_for_client_and_trail() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (proxy, through) = place.database_through_proxy();
    let replicas = blocking(|| Ok(start_together([spec(&through, "trail-lost", &[])])));
    let replica = &replicas[0];
    let caller = Caller::new(replica.base_url());
    let voucher = caller.voucher(STOCK).await;
    let rule = proxy.arm(Command::commit(), Action::CutAnswer, Times::Next(1));
    let path = format!("/api/admin/vouchers/{voucher}/stock");
    let request = caller.raw((Method::POST, &path), json!({"units": 5}).to_string());
    let authorization = crate::caller::bearer(&token(9, Role::Admin));
    let answer = caller.send(request.header("authorization", authorization)).await;
    assert_eq!(answer.status.as_u16(), 504, "{}", answer.body);
    assert_eq!(answer.body["code"], "outcome_unknown");
    assert_eq!(answer.body["voucher_id"], voucher, "{}", answer.body);
    drop(rule);
    eventually("one line", async || lines(replica, &voucher).len() == 1).await;
    let line = &lines(replica, &voucher)[0];
    assert!(line.contains(r#"outcome="unknown""#), "{line}");
    assert_eq!((stock(line, "before"), stock(line, "after")), (STOCK, STOCK + 5));
    assert_eq!(grants(&place, &voucher).await, 1);
}
