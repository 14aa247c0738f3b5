//! A server goes away and comes back: a definite 503 at once, then business as usual, without a
//! restart of the service. A crowd buys all the while; afterwards the books must bear it out.

use std::time::{Duration, Instant};

use testbed::{Direction, Stopwatch};

use crate::breakable::{Breakable, blocking, until_ready};
use crate::crowd::{Books, Crowd, Fate, Try, buy_at, buy_together};
use crate::support::{Service, client};

/// No request during an outage of a server waits longer.
const MAX_WAIT: Duration = Duration::from_secs(6);
/// Once `/readyz` says that a server is away, no request waits at all.
const PROMPT_WITHIN: Duration = Duration::from_millis(500);
const STOCK: i64 = 100_000;
const CROWD: u32 = 8;
const POOL: u32 = 4;
const LEASE: Duration = Duration::from_secs(10);

struct Fault {
    server: &'static str,
    strike: fn(&Breakable) -> testbed::Result<()>,
    heal: fn(&Breakable) -> testbed::Result<()>,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_redis_is_a_503_at_once_and_heals_without_a_restart_of_the_service() {
    story(Fault { server: "redis", strike: |s| s.redis.kill(), heal: |s| s.redis.restart() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_redis_is_a_503_at_once_and_heals_without_a_restart_of_the_service() {
    story(Fault { server: "redis", strike: |s| s.redis.freeze(), heal: |s| s.redis.thaw() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_database_is_a_503_at_once_and_heals_without_a_restart_of_the_service() {
    story(Fault {
        server: "database",
        strike: |s| s.database.kill(),
        heal: |s| s.database.restart(),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_database_is_a_503_at_once_and_heals_without_a_restart_of_the_service() {
    story(Fault {
        server: "database",
        strike: |s| s.database.freeze(),
        heal: |s| s.database.thaw(),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_order_ids_from_a_frozen_redis_do_not_wait_one_after_the_other() {
    let servers = Breakable::start();
    let service = Service::start_at(servers.place(), &["--lock", "none"]).await;
    let voucher = service.voucher(10).await;
    blocking(|| servers.redis.freeze());
    let asked = Stopwatch::start();
    let tries = buy_together(&service.url, &voucher, 1..101).await;
    let took = asked.elapsed();
    blocking(|| servers.redis.thaw());
    tries.iter().for_each(assert_refused);
    assert!(took < Duration::from_secs(3), "{took:?}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_answers_later_than_its_timeout_is_away_and_one_that_is_in_time_sells() {
    for (flags, bought) in [(&["--redis-timeout-ms", "10000"][..], true), (&[], false)] {
        let (proxy, service) = Service::start_through_redis_proxy(flags).await;
        let voucher = service.voucher(1).await;
        // Less than the second in which order ids must have been drawn.
        proxy.set_latency(Direction::Both, Duration::from_millis(300), Duration::ZERO);
        let buy = async |user| buy_at(&service.url, &voucher, user).await;
        if bought {
            // On a machine that stands still a try may take longer than that second.
            until_bought(&buy, 1).await;
        } else {
            assert_refused(&buy(1).await);
        }
        service.stop().await;
    }
}

/// 201, broken, 503 at once, healed, 201.
async fn story(fault: Fault) {
    let servers = Breakable::start();
    let pool = POOL.to_string();
    let service = Service::start_at(servers.place(), &["--db-pool", &pool]).await;
    let voucher = service.voucher(u32::try_from(STOCK).expect("a stock")).await;
    let buy = async |user| buy_at(&service.url, &voucher, user).await;
    assert_bought(&buy(1).await);
    let crowd = Crowd::start(&service.url, &voucher, CROWD);
    crowd.until_bought(50).await;

    blocking(|| (fault.strike)(&servers));
    let struck = Instant::now();
    let (first, noticed) = tokio::join!(buy(2), until_ready(&service, Some(fault.server)));
    assert_refused(&first);
    assert!(first.took < MAX_WAIT, "the first answer took {:?}", first.took);
    assert_alive(&service).await;
    let mut slowest = Duration::ZERO;
    for user in 3..23 {
        let asked = Stopwatch::start();
        let refused = buy(user).await;
        let took = asked.elapsed();
        assert_refused(&refused);
        let answer = refused.answer.as_ref().expect("an answer");
        assert_eq!(answer.body["code"], "dependency_unavailable");
        assert!(took < PROMPT_WITHIN, "{took:?} although it was known");
        slowest = slowest.max(took);
    }
    assert_alive(&service).await;

    let mending = Instant::now();
    blocking(|| (fault.heal)(&servers));
    let healed = Instant::now();
    until_ready(&service, None).await;
    let ready = healed.elapsed();
    // What the first one left on a server that had not answered must not keep it from buying.
    let again = until_bought(&buy, 2).await;
    assert!(again < LEASE / 2, "who was refused could buy only after {again:?}");
    assert_whole_pool_works(&service, &voucher).await;
    crowd.until_bought(50).await;

    let tries = crowd.end().await;
    let meanwhile = |t: &&Try| t.sent > struck && t.sent < mending;
    let longest = tries.iter().filter(meanwhile).map(|t| t.took).max().unwrap_or_default();
    assert!(longest < MAX_WAIT, "a request waited for {longest:?}");
    assert_crowd(&tries, (struck, mending));
    let books = Books::read(&service.place.database_url, &voucher).await;
    books.add_up_to(STOCK);
    books.bear_out(&tries);
    println!(
        "{}: first 503 after {:?} ({}), /readyz after {noticed:?}, then within {slowest:?}; \
         longest answer of {} tries {longest:?}; ready {ready:?} after the healing, the first \
         buyer {again:?} later",
        fault.server,
        first.took,
        first.words(),
        tries.len(),
    );
    service.stop().await;
}

fn assert_bought(one: &Try) {
    assert!(matches!(one.fate(), Fate::Bought(_)), "{}", one.words());
}

/// A refusal that proves that nothing was done.
fn assert_refused(one: &Try) {
    let answer = one.answer.as_ref().expect("an answer");
    answer.problem(503);
    assert_eq!(answer.body["executed"], false, "{}", answer.body);
    let retry_after = answer.headers["retry-after"].to_str().expect("text");
    assert!(retry_after.parse::<u32>().is_ok_and(|s| s >= 1), "{retry_after}");
}

async fn assert_alive(service: &Service) {
    let answer = client().get(format!("{}/livez", service.url)).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
}

/// Tries until the user has bought; how long that took.
async fn until_bought(buy: &impl AsyncFn(u64) -> Try, user: u64) -> Duration {
    let started = Instant::now();
    loop {
        let one = buy(user).await;
        if matches!(one.fate(), Fate::Bought(_)) {
            return started.elapsed();
        }
        assert!(started.elapsed() < LEASE * 2, "not healed: {}", one.words());
    }
}

/// As many purchases as there are connections, several times, none of them slow.
async fn assert_whole_pool_works(service: &Service, voucher: &str) {
    for round in 0..3_u64 {
        let users = (0..u64::from(POOL)).map(|n| 100 + round * 10 + n);
        let asked = Stopwatch::start();
        let tries = buy_together(&service.url, voucher, users).await;
        let took = asked.elapsed();
        tries.iter().for_each(assert_bought);
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}

/// The crowd bought before and after, and was refused in between.
fn assert_crowd(tries: &[Try], (struck, mending): (Instant, Instant)) {
    let bought = |t: &&Try| matches!(t.fate(), Fate::Bought(_));
    assert!(tries.iter().filter(bought).any(|t| t.sent < struck), "no purchase before");
    assert!(tries.iter().filter(bought).any(|t| t.sent > mending), "no purchase after");
    let between = |t: &&Try| t.sent > struck && t.sent + t.took < mending;
    for one in tries.iter().filter(between) {
        assert_eq!(one.fate(), Fate::Refused, "{}", one.words());
    }
}
