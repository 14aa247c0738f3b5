//! What `redlock` leaves to the background: the servers that a release has not heard of yet when a
//! majority has answered. In a file of its own, as it stops a server.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Look, at_once, connect, fresh_name};
use distlock::{Locker, Locks, Multi, Redlock, Release};
use testbed::{Bed, RedisOptions};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(20);

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
        let (locks, name) = (Locks::new(locker), fresh_name());
        let look = Look::at(servers[2].url()).await;
        let guard = locks.lock(&name, &at_once()).await.expect("it is free");
        locks.flush().await;
        servers[2].freeze().expect("a stop");
        let released = guard.release().await.expect("two of three answer");
        assert_eq!(released, Release::Released);
        let mut flush = Box::pin(locks.flush());
        let early = timeout(Duration::ZERO, &mut flush).await;
        servers[2].thaw().expect("a continue");
        assert!(early.is_err(), "one server has not answered yet");
        timeout(DEADLINE, flush).await.expect("it comes to its end");
        assert_eq!(look.owner(&name).await, None, "it has heard of it");
    }
}
