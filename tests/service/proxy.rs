//! Three replicas as processes behind the proxy that ships: restarted one after the other under
//! load without a request lost, and one of them killed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use reqwest::{Client, Method};
use seckill::domain::Role;
use testbed::{Haproxy, Replica, Stopwatch};

use crate::breakable::blocking;
use crate::caller::Caller;
use crate::crowd::{Books, Crowd, Fate, Try};
use crate::replicas::spec;
use crate::support::{Answer, Place, client, eventually, servers, token};

const NAMES: [&str; 3] = ["one", "two", "three"];
const STOCK: u32 = 1_000_000;
const CLIENTS: u32 = 16;
/// The proxy looks twice before it takes a dead replica out: 0.5 s at most and 0.1 s.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);
/// A replica that was told to end must have ended by then: 2 s of draining, and its last work.
const ENDED_WITHIN: Duration = Duration::from_secs(15);

struct Deployment {
    replicas: Vec<Replica>,
    proxy: Haproxy,
    place: Place,
    voucher: String,
}

impl Deployment {
    async fn start() -> Self {
        let (replicas, proxy, place) = blocking(|| {
            let (bed, place) = (&servers().bed, Place::fresh());
            let started = std::thread::scope(|scope| {
                let starting = NAMES.map(|name| {
                    let spec = spec(&place, name, &[]);
                    scope.spawn(move || bed.replica(spec))
                });
                starting.map(|thread| thread.join().expect("no panic"))
            });
            let replicas = started.into_iter().collect::<testbed::Result<Vec<_>>>()?;
            let addresses: Vec<_> = replicas.iter().map(Replica::addr).collect();
            Ok((replicas, bed.haproxy(&addresses)?, place))
        });
        let voucher = Caller::new(replicas[0].base_url()).voucher(STOCK).await;
        let deployment = Self { replicas, proxy, place, voucher };
        deployment.until_all_answer().await;
        deployment
    }

    /// Waits until every replica is in the rotation.
    async fn until_all_answer(&self) {
        let mut seen = BTreeSet::new();
        eventually("every replica answers", async || {
            let url = format!("{}/livez", self.proxy.url());
            let answer = client().get(url).send().await.expect("an answer");
            seen.extend(answer.headers().get("x-replica").map(|name| name.as_bytes().to_vec()));
            seen.len() == NAMES.len()
        })
        .await;
    }

    /// Waits until the proxy has taken a dead replica out, and says so.
    async fn until_left_out(&self, replica: usize) {
        let log = || std::fs::read_to_string(self.proxy.log_path()).expect("its log");
        let number = replica + 1;
        eventually("the proxy leaves the replica out", async || {
            let log = log();
            let last = |state: &str| log.rfind(&format!("/replica{number} is {state}"));
            last("DOWN") > last("UP")
        })
        .await;
    }

    async fn books(&self) -> Books {
        Books::read(&self.place.database_url, &self.voucher).await
    }
}

fn replica_of(answer: &Answer) -> &str {
    answer.headers["x-replica"].to_str().expect("text")
}

/// How many each replica sold, of the tries sent in that time.
fn shares(tries: &[Try], (from, to): (Instant, Instant)) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    for one in tries.iter().filter(|one| one.sent >= from && one.sent < to) {
        if let (Fate::Bought(_), Ok(answer)) = (one.fate(), &one.answer) {
            *shares.entry(replica_of(answer).to_owned()).or_default() += 1;
        }
    }
    shares
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_under_load_loses_no_request() {
    let deployment = Deployment::start().await;
    let began = Instant::now();
    let crowd = Crowd::start(deployment.proxy.url(), &deployment.voucher, CLIENTS);
    crowd.until_bought(100).await;
    let rolling = Instant::now();
    let mut stopping = Vec::new();
    for replica in &deployment.replicas {
        let (asked, pid) = (Instant::now(), replica.pid());
        let status = blocking(|| replica.stop(ENDED_WITHIN));
        assert!(status.success(), "{status}");
        stopping.push(asked.elapsed());
        blocking(|| replica.restart());
        assert_ne!(replica.pid(), pid, "it is another process");
        deployment.until_all_answer().await;
    }
    let rolled = Instant::now();
    crowd.until_bought(100).await;
    let tries = crowd.end().await;

    let lost: Vec<_> = tries.iter().filter(|one| !matches!(one.fate(), Fate::Bought(_))).collect();
    let words: Vec<_> = lost.iter().take(5).map(|one| one.words()).collect();
    assert!(lost.is_empty(), "{} of {} lost: {words:?}", lost.len(), tries.len());
    for time in [(began, rolling), (rolling, rolled), (rolled, Instant::now())] {
        let shares = shares(&tries, time);
        println!("{shares:?}");
        assert_eq!(shares.len(), NAMES.len(), "a replica was never asked: {shares:?}");
    }
    let longest = tries.iter().map(|one| one.took).max().unwrap_or_default();
    println!("{} requests, none lost, the longest {longest:?}; stops {stopping:?}", tries.len());
    let books = deployment.books().await;
    books.add_up_to(STOCK.into());
    books.bear_out(&tries);
    assert_eq!(books.orders.len(), tries.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_replica_is_left_out_and_the_others_continue_selling() {
    let deployment = Deployment::start().await;
    let crowd = Crowd::start(deployment.proxy.url(), &deployment.voucher, CLIENTS);
    crowd.until_bought(100).await;
    let (killed, noticing) = (Instant::now(), Stopwatch::start());
    blocking(|| deployment.replicas[0].kill());
    deployment.until_left_out(0).await;
    assert!(noticing.elapsed() < NOTICED_WITHIN, "{:?}", noticing.elapsed());
    let settled = Instant::now();
    crowd.until_bought(100).await;
    let restarting = Instant::now();
    blocking(|| deployment.replicas[0].restart());
    deployment.until_all_answer().await;
    let tries = crowd.end().await;

    let failed = tries.iter().filter(|one| !matches!(one.fate(), Fate::Bought(_)));
    let failed: Vec<_> = failed.map(|one| (one.sent.duration_since(killed), one.words())).collect();
    let noticed_after = settled - killed;
    println!("{} of {} were hit: {failed:?}", failed.len(), tries.len());
    assert!(failed.len() <= CLIENTS as usize, "more than were under way: {failed:?}");
    assert!(failed.iter().all(|(after, _)| *after < noticed_after), "{noticed_after:?} {failed:?}");
    let shares = shares(&tries, (settled, restarting));
    assert_eq!(shares.keys().collect::<Vec<_>>(), ["three", "two"], "{shares:?}");
    let books = deployment.books().await;
    books.add_up_to(STOCK.into());
    books.bear_out(&tries);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_spreads_the_requests_of_one_connection_and_publishes_only_public_paths() {
    let deployment = Deployment::start().await;
    let (public, operators) = (deployment.proxy.url(), deployment.proxy.operator_url());
    let client = Client::builder().no_proxy().pool_max_idle_per_host(1).build().expect("a client");
    let mut seen = BTreeMap::new();
    for _ in 0..12 {
        let answer = client.get(format!("{public}/api/vouchers")).send().await.expect("an answer");
        let answer = Answer::of(answer).await;
        *seen.entry(replica_of(&answer).to_owned()).or_insert(0) += 1;
        answer.expect(200);
    }
    assert!(seen.len() == NAMES.len() && seen.values().all(|count| *count >= 3), "{seen:?}");

    let audit = format!("/api/admin/vouchers/{}/audit", deployment.voucher);
    for path in ["/metrics", "/readyz", &audit] {
        let ask = async |url: &str| {
            let caller = Caller::new(url);
            let request = caller.request(Method::GET, path).bearer_auth(token(1, Role::Admin));
            caller.send(request).await
        };
        assert_eq!(ask(public).await.problem(404), "not_found", "{path}");
        assert_eq!(ask(operators).await.status, 200, "{path}");
    }
    // Each time another replica answers, and its page says which.
    let operators = Caller::new(operators);
    for _ in NAMES {
        let metrics = operators.send(operators.request(Method::GET, "/metrics")).await;
        let named = format!("\nseckill_replica_info{{replica=\"{}\"}} 1\n", replica_of(&metrics));
        let page = metrics.expect(200);
        assert!(page.as_str().is_some_and(|page| page.contains(&named)), "{named} {page}");
    }
}
