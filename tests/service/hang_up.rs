//! A client that hangs up in the middle of its purchase does not abort it half way.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use seckill::domain::Role;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::contention::ForeignSession;
use crate::crowd::{Books, Fate, buy_together};
use crate::queued::buyer::{IN_TIME, lock_stock};
use crate::redis_side::RedisSide;
use crate::support::{Service, eventually, token, within};
use crate::wire;

const STOCK: u32 = 1000;
const WORK: Duration = Duration::from_millis(300);
/// Connections to the database, and clients that hang up at a time.
const POOL: u64 = 4;
const ROUNDS: usize = 3;
/// A machine that stands still for 3 s ends the wait of a purchase for its stock row.
const TRIES: usize = 8;
/// Places for purchases: fewer than there are hang-ups, so that leaks would add up.
const PLACES: u64 = 12;

/// When the client goes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    /// Half of the request was sent.
    HalfSent,
    /// All of it was.
    Sent,
    /// The purchase holds its lock.
    Locked,
}

/// How the client goes.
#[derive(Debug, Clone, Copy)]
enum Way {
    Close,
    Reset,
}

/// Whether the client went at that moment.
async fn send_and_go(
    (service, redis): (&Service, &RedisSide),
    voucher: &str,
    user: u64,
    (moment, way): (Moment, Way),
) -> bool {
    let request = format!(
        "POST /api/vouchers/{voucher}/orders HTTP/1.1\r\nHost: test\r\n\
         Authorization: Bearer {}\r\nContent-Length: 0\r\n\r\n",
        token(user, Role::Buyer)
    );
    let end = if moment == Moment::HalfSent { request.len() / 2 } else { request.len() };
    let mut stream: TcpStream = wire::connect(&service.url).await;
    stream.write_all(&request.as_bytes()[..end]).await.expect("sent");
    let is_locked = async || redis.has_lock(user).await;
    let in_time = moment != Moment::Locked || within(IN_TIME, is_locked).await;
    if matches!(way, Way::Reset) {
        stream.set_zero_linger().expect("a socket");
    }
    in_time
}

/// A round of clients that go; whether all went at that moment, before a purchase of theirs gave up
/// waiting for its row.
async fn go_together(
    (service, redis): (&Service, &RedisSide),
    voucher: &str,
    users: impl Iterator<Item = u64>,
    how: (Moment, Way),
) -> bool {
    // No purchase gives its lock back before it was seen.
    let tx = match how.0 {
        Moment::Locked => Some(lock_stock(&service.place.database_url, voucher).await),
        Moment::HalfSent | Moment::Sent => None,
    };
    let began = Instant::now();
    let gone = users.map(|user| send_and_go((service, redis), voucher, user, how));
    let mut in_time = join_all(gone).await.into_iter().all(|in_time| in_time);
    if let Some(tx) = tx {
        tx.rollback().await.expect("a ROLLBACK");
        in_time &= began.elapsed() < IN_TIME;
    }
    eventually("the purchases end", async || redis.locks().await.is_empty()).await;
    in_time
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_in_the_middle_does_not_abort_its_purchase() {
    let [work, pool, places] =
        [u64::try_from(WORK.as_millis()).expect("short"), POOL, PLACES].map(|n| n.to_string());
    let flags = ["--lab", "--work-ms", &work, "--db-pool", &pool, "--max-orders", &places];
    let service = Service::start(&[&flags[..], &["--lock-wait-ms", "200"]].concat()).await;
    let voucher = service.voucher(STOCK).await;
    let redis = RedisSide::connect(&service.place.redis_url).await;
    let mut user = 0;
    for way in [Way::Close, Way::Reset] {
        for moment in [Moment::HalfSent, Moment::Sent, Moment::Locked] {
            let (mut counted, mut rounds) = (Vec::new(), 0);
            for _ in 0..TRIES {
                let users = user + 1..=user + POOL;
                user += POOL;
                let how = (moment, way);
                if go_together((&service, &redis), &voucher, users.clone(), how).await {
                    counted.extend(users);
                    rounds += 1;
                }
                if rounds == ROUNDS {
                    break;
                }
            }
            assert_eq!(rounds, ROUNDS, "{moment:?}, {way:?}: the clients were late");
            let books = Books::read(&service.place.database_url, &voucher).await;
            books.add_up_to(STOCK.into());
            let written = counted.iter().filter(|user| books.of(**user).len() == 1).count();
            println!("{moment:?}, {way:?}: {written} of {} written", counted.len());
            match moment {
                Moment::HalfSent => assert_eq!(written, 0),
                Moment::Sent => {}
                Moment::Locked => assert_eq!(written, counted.len(), "{way:?}"),
            }
        }
    }
    assert_nothing_leaked(&service, &voucher).await;
}

/// No connection and no place is gone with those who hung up.
async fn assert_nothing_leaked(service: &Service, voucher: &str) {
    let (mut round, mut watch) = (0, ForeignSession::connect(&service.place).await);
    let all_connections_work = async || {
        round += 1;
        let users = (0..POOL).map(|n| 10_000 + round * POOL + n);
        let tx = lock_stock(&service.place.database_url, voucher).await;
        let all_wait = async {
            let pool = i64::try_from(POOL).expect("few");
            let all_wait = within(IN_TIME, async || watch.waiting().await == pool).await;
            tx.rollback().await.expect("a ROLLBACK");
            all_wait
        };
        let buying = buy_together(&service.url, voucher, users);
        let (tries, all_wait) = tokio::join!(buying, all_wait);
        all_wait && tries.iter().all(|one| matches!(one.fate(), Fate::Bought(_)))
    };
    eventually("all connections work side by side", all_connections_work).await;
    let mut user = 20_000;
    // One of them buys, and the others wait for the lock, each in a place of its own.
    let all_places_are_free = async || {
        user += 1;
        let users = std::iter::repeat_n(user, usize::try_from(PLACES).expect("few"));
        let tries = buy_together(&service.url, voucher, users).await;
        tries.iter().all(|t| t.answer.as_ref().is_ok_and(|answer| answer.status != 503))
    };
    eventually("all places are free", all_places_are_free).await;
}
