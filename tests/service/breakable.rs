//! Servers that belong to one test, which may therefore break them.

use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::{Bed, Database, Flavor, Redis, RedisOptions};

use crate::support::{Place, Service, client, make_admins};

/// A database server and a Redis of one's own.
pub(crate) struct Breakable {
    pub(crate) redis: Redis,
    pub(crate) database: Database,
    /// The last to go: in a failed test it shows what the servers logged.
    _bed: Bed,
}

impl Breakable {
    pub(crate) fn start() -> Self {
        blocking(|| {
            let bed = Bed::start()?;
            let redis = bed.redis(RedisOptions::default())?;
            let database = bed.database(Flavor::Any)?;
            database.create_database("sale")?;
            make_admins(&database.url("sale"));
            Ok(Self { redis, database, _bed: bed })
        })
    }

    pub(crate) fn place(&self) -> Place {
        Place { database_url: self.database.url("sale"), redis_url: self.redis.url().to_owned() }
    }
}

/// A call of the testbed from a test on several threads; it must succeed.
pub(crate) fn blocking<T>(act: impl FnOnce() -> testbed::Result<T>) -> T {
    tokio::task::block_in_place(act).unwrap_or_else(|error| panic!("{error}"))
}

/// What `/readyz` says: whether it is ready, and the reasons why not.
pub(crate) async fn readiness(url: &str) -> (bool, String) {
    let answer = client().get(format!("{url}/readyz")).send().await.expect("an answer");
    let ready = answer.status() == 200;
    let body: Value = answer.json().await.expect("JSON");
    assert_eq!(body["ready"], ready, "{body}");
    (ready, body["reasons"].to_string())
}

/// Waits until the service is ready, or is not because of `reason`; how long that took.
pub(crate) async fn until_ready(service: &Service, reason: Option<&str>) -> Duration {
    let started = Instant::now();
    loop {
        let (ready, reasons) = readiness(&service.url).await;
        match reason {
            None if ready => return started.elapsed(),
            Some(reason) if !ready && reasons.contains(reason) => return started.elapsed(),
            _ => {}
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{reason:?} awaited, {reasons}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
