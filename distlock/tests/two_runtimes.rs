//! Locks that two runtimes share, of which one ends.

mod support;

use std::time::{Duration, Instant};

use distlock::{LockName, Locks, Release};
use support::redisson::{RawRedis, Service};
use support::{at_once, eventually, fresh_name, server};
use tokio::runtime::Builder;

/// Half as long as Redis remembers a release that it is not told to forget.
const DELETED_WITHIN: Duration = Duration::from_secs(5);

async fn take_and_release(locks: &Locks) -> LockName {
    let name = fresh_name();
    let guard = locks.lock(&name, &at_once()).await.expect("it is free");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
    name
}

#[test]
fn latches_that_an_ended_runtime_left_are_deleted_with_the_next_ones() {
    let lasting = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let lasting = lasting.expect("threads");
    let url = server().url();
    let (locks, raw) =
        lasting.block_on(async { (Service::at(url).await.locks, RawRedis::at(url).await) });
    let brief = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let first = brief.block_on(take_and_release(&locks));
    // Before the moment is over for which releases are gathered.
    drop(brief);
    lasting.block_on(async {
        assert!(!raw.keys(&first).await.is_empty(), "it was forgotten at once");
        let began = Instant::now();
        let next = take_and_release(&locks).await;
        eventually("both are forgotten", async || {
            raw.keys(&first).await.is_empty() && raw.keys(&next).await.is_empty()
        })
        .await;
        assert!(
            began.elapsed() < DELETED_WITHIN,
            "they ended by themselves: {:?}",
            began.elapsed()
        );
    });
}
