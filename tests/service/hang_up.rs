//! A client that hangs up in the middle of its purchase does not abort it half way.

use std::time::Duration;

use seckill::domain::Role;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::crowd::{Books, Fate, buy_together};
use crate::redis_side::RedisSide;
use crate::support::{Service, eventually, token};
use crate::wire;

const STOCK: u32 = 1000;
const WORK: Duration = Duration::from_millis(300);
/// Connections to the database, and clients that hang up at a time.
const POOL: u64 = 4;
const ROUNDS: u64 = 3;
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

async fn send_and_go(service: &Service, voucher: &str, user: u64, (moment, way): (Moment, Way)) {
    let request = format!(
        "POST /api/vouchers/{voucher}/orders HTTP/1.1\r\nHost: test\r\n\
         Authorization: Bearer {}\r\nContent-Length: 0\r\n\r\n",
        token(user, Role::Buyer)
    );
    let end = if moment == Moment::HalfSent { request.len() / 2 } else { request.len() };
    let mut stream: TcpStream = wire::connect(&service.url).await;
    stream.write_all(&request.as_bytes()[..end]).await.expect("sent");
    if moment == Moment::Locked {
        let redis = RedisSide::connect(&service.place.redis_url).await;
        eventually("the purchase holds its lock", async || redis.has_lock(user).await).await;
    }
    if matches!(way, Way::Reset) {
        stream.set_zero_linger().expect("a socket");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_in_the_middle_does_not_abort_its_purchase() {
    let [work, pool, places] =
        [u64::try_from(WORK.as_millis()).expect("short"), POOL, PLACES].map(|n| n.to_string());
    let flags = ["--lab", "--work-ms", &work, "--db-pool", &pool, "--max-orders", &places];
    let service = Service::start(&[&flags[..], &["--lock-wait-ms", "200"]].concat()).await;
    let voucher = service.voucher(STOCK).await;
    let redis = RedisSide::connect(&service.place.redis_url).await;
    let nothing_under_way = async || redis.locks().await.is_empty();
    let mut user = 0;
    for way in [Way::Close, Way::Reset] {
        for moment in [Moment::HalfSent, Moment::Sent, Moment::Locked] {
            let first = user + 1;
            for _ in 0..ROUNDS {
                let users = user + 1..=user + POOL;
                user += POOL;
                let gone = users.map(|user| send_and_go(&service, &voucher, user, (moment, way)));
                join(gone).await;
                eventually("the purchases end", &nothing_under_way).await;
            }
            let books = Books::read(&service.place.database_url, &voucher).await;
            books.add_up_to(STOCK.into());
            let written = (first..=user).filter(|user| books.of(*user).len() == 1).count();
            println!("{moment:?}, {way:?}: {written} of {} written", POOL * ROUNDS);
            match moment {
                Moment::HalfSent => assert_eq!(written, 0),
                Moment::Sent => {}
                Moment::Locked => assert_eq!(written, 12, "{way:?}"),
            }
        }
    }
    assert_nothing_leaked(&service, &voucher).await;
}

async fn join<F: Future<Output = ()>>(futures: impl Iterator<Item = F>) {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// No connection and no place is gone with those who hung up.
async fn assert_nothing_leaked(service: &Service, voucher: &str) {
    let mut round = 0;
    let all_connections_work = async || {
        round += 1;
        let users = (0..POOL).map(|n| 10_000 + round * POOL + n);
        let tries = buy_together(&service.url, voucher, users).await;
        tries.iter().all(|t| matches!(t.fate(), Fate::Bought(_)) && t.took < WORK * 2)
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
