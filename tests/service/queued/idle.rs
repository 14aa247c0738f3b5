//! A deployment with nothing to do, whose database sessions end meanwhile.

use std::collections::HashSet;
use std::fs;

use sqlx::{Connection, Executor, MySqlConnection};
use tokio::task::JoinSet;

use crate::breakable::blocking;
use crate::fleet::start_together;
use crate::queued::buyer::QUEUED;
use crate::replicas::spec;
use crate::support::{Place, client, eventually, eventually_within};

const REPLICAS: usize = 3;
/// Sessions of a replica that never fall silent: of heartbeat, revocations, health and queue.
const ACTIVE: usize = 5;
/// Requests to each replica at a time; each takes a connection of the pool.
const REQUESTS: usize = 12;
/// More than twice the time after which a pool closes an idle session, on a busy machine.
const POOLS_SHRINK_S: u64 = 90;

/// The sessions of that place's database.
async fn sessions(place: &Place) -> HashSet<u64> {
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let ids = sqlx::query_scalar::<_, u64>(
        "SELECT CAST(id AS UNSIGNED) FROM information_schema.processlist WHERE db = DATABASE()",
    );
    ids.fetch_all(&mut database).await.expect("the sessions").into_iter().collect()
}

async fn ask(url: &str) -> u16 {
    let request = client().get(format!("{url}/api/vouchers")).send();
    request.await.expect("an answer").status().as_u16()
}

/// Asks each replica for its vouchers, many times at once.
fn ask_together(urls: &[String]) -> JoinSet<u16> {
    let mut requests = JoinSet::new();
    for url in urls.iter().cycle().take(REPLICAS * REQUESTS) {
        let url = url.clone();
        requests.spawn(async move { ask(&url).await });
    }
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_fleet_that_was_idle_logs_no_warning() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let replica = |number| spec(&place, &format!("idle-{number}"), &QUEUED);
    let replicas = blocking(|| Ok(start_together((1..=REPLICAS).map(replica))));
    let urls: Vec<_> = replicas.iter().map(|one| one.base_url().to_owned()).collect();
    let log = |path| fs::read_to_string(path).expect("a log");
    let starts: Vec<_> = replicas.iter().map(|one| log(one.log_path()).len()).collect();

    // Each request needs a connection of its own while the table is locked.
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    database.execute("LOCK TABLES vouchers WRITE").await.expect("the table");
    let requests = ask_together(&urls);
    eventually("the pools grow", async || sessions(&place).await.len() > REPLICAS * REQUESTS).await;
    let busy = sessions(&place).await;
    database.close().await.expect("the table is free");
    assert!(requests.join_all().await.iter().all(|status| *status == 200));

    eventually_within(POOLS_SHRINK_S, "the sessions of the pools end", async || {
        sessions(&place).await.intersection(&busy).count() <= REPLICAS * ACTIVE
    })
    .await;
    // One after the other: the pool gives out the session that was idle for longest, so each is
    // used, and no request waits for a connection on a busy machine.
    for url in urls.iter().cycle().take(REPLICAS * REQUESTS) {
        assert_eq!(ask(url).await, 200);
    }
    for (replica, start) in replicas.iter().zip(starts) {
        let log = log(replica.log_path());
        let warnings: Vec<_> =
            log[start..].lines().filter(|line| line.contains(" WARN ")).collect();
        assert!(warnings.is_empty(), "{} warnings: {warnings:#?}", warnings.len());
    }
}
