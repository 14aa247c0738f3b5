//! What `redlock` leaves to the background: the servers that a release has not heard of yet when a
//! majority has answered. In a file of its own, as it stops a server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Look, at_once, connect, fresh_name, granted};
use distlock::{Locker, Locks, Multi, Redlock, Release};
use testbed::{Bed, RedisOptions};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(20);
/// Less than the half second after which a server without an answer is given up.
const NOT_GIVEN_UP: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread")]
async fn flush_waits_until_the_slowest_server_has_the_release() {
    let bed = Bed::start().expect("a private bed");
    let servers = bed.redis_many(3, RedisOptions::default()).expect("Redis is installed");
    let mut ways = Vec::new();
    for server in &servers {
        ways.push(connect(server.url()).await);
    }
    let redlock: Arc<dyn Locker> = Arc::new(Redlock::new(&ways).expect("three servers"));
    let multi: Arc<dyn Locker> =
        Arc::new(Multi::same_name(vec![Arc::clone(&redlock)]).expect("a member"));
    for locker in [redlock, multi] {
        let locks = Locks::new(locker);
        let look = Look::at(servers[2].url()).await;
        let mut rounds = 0;
        loop {
            rounds += 1;
            let name = fresh_name();
            let guard = granted(&locks, &name, &at_once()).await;
            locks.flush().await;
            let frozen = Instant::now();
            servers[2].freeze().expect("a stop");
            let released = guard.release().await;
            let mut flush = Box::pin(locks.flush());
            let early = timeout(Duration::ZERO, &mut flush).await;
            servers[2].thaw().expect("a continue");
            timeout(DEADLINE, flush).await.expect("it comes to its end");
            let took = frozen.elapsed();
            // A busy machine may be too slow for it.
            if took > NOT_GIVEN_UP {
                assert!(rounds < 10, "{took:?} is too long");
                continue;
            }
            assert_eq!(released.expect("two of three answer"), Release::Released);
            assert!(early.is_err(), "one server has not answered yet");
            assert_eq!(look.owner(&name).await, None, "it has heard of it");
            break;
        }
    }
}
