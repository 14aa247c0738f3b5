//! How a process passes `redisson` on from one of its tasks to the next.

mod support;

use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::time::Duration;

use distlock::{Guard, LockError, LockName, Release};
use support::redisson::{Own, Service, channel};
use support::{eventually, fresh_name, patient};
use testbed::{Command, Direction, Rule};
use tokio::time::sleep;

type Acquired = Result<Guard, LockError>;

/// The lock for a task that has asked for it behind another one of its process.
async fn queued<F: Future<Output = Acquired>>(lock: &mut Pin<&mut F>) {
    tokio::select! {
        biased;
        taken = lock => panic!("{taken:?}"),
        () = ready(()) => {}
    }
}

/// Frees the first one's lock while nothing is heard of the server, and brings the second one's
/// when something is again; `meanwhile` is what others see before that.
async fn pass_on(
    own: &Own,
    first: Guard,
    second: impl Future<Output = Acquired>,
    meanwhile: impl Future<Output = ()>,
) -> Guard {
    own.proxy.hold(Direction::ToClient);
    let seen = async {
        meanwhile.await;
        own.proxy.release(Direction::ToClient);
    };
    let (released, second, ()) = tokio::join!(first.release(), second, seen);
    assert_eq!(released.expect("a release"), Release::Released);
    second.expect("the lock")
}

async fn lock(service: &Service, name: &LockName) -> Acquired {
    service.locks.lock(name, &patient()).await
}

/// Locks and releases, so that the server knows the scripts, until the owner is one in ten, or is
/// not.
async fn lock_as_one_in_ten(service: &Service, name: &LockName, is_tenth: bool) -> Guard {
    loop {
        let guard = lock(service, name).await.expect("the lock");
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
        let guard = lock(service, name).await.expect("the lock");
        if guard.owner().as_str().ends_with('0') == is_tenth {
            return guard;
        }
    }
}

/// What the process has sent about the lock; latches are forgotten a moment later.
fn sent(own: &Own, name: &LockName) -> Rule {
    let of_this = Command::redis("").containing(name.as_str());
    own.proxy.watch(of_this.when(|parts| !parts[0].eq_ignore_ascii_case(b"DEL")))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_task_of_a_process_has_the_lock_before_the_answer_to_the_release_has_come() {
    let own = Own::start();
    let (service, raw, name) = (own.service().await, own.raw().await, fresh_name());
    let first = lock_as_one_in_ten(&service, &name, false).await;
    let mut second = pin!(lock(&service, &name));
    queued(&mut second).await;
    let before = first.owner().clone();
    let meanwhile = eventually("somebody else has it", async || {
        let holders = raw.holds(&name).await;
        holders.len() == 1 && !holders.contains_key(before.as_str())
    });
    let second = pass_on(&own, first, second, meanwhile).await;
    assert_eq!(second.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_other_processes_wait_and_one_time_in_ten_it_has_it_when_the_answer_has_come() {
    let own = Own::start();
    let (service, raw, name) = (own.service().await, own.raw().await, fresh_name());
    let client = redis::Client::open(own.redis.url()).expect("a client");
    let mut other = client.get_async_pubsub().await.expect("a connection");
    for somebody_waits in [false, true] {
        if somebody_waits {
            // The answer to the release before the one that counts says so.
            other.subscribe(channel(&name)).await.expect("a subscription");
        }
        let first = lock_as_one_in_ten(&service, &name, !somebody_waits).await;
        let mut second = pin!(lock(&service, &name));
        queued(&mut second).await;
        let sent = sent(&own, &name);
        let meanwhile = async {
            eventually("it is free", async || raw.holds(&name).await.is_empty()).await;
            sleep(Duration::from_millis(100)).await;
            assert_eq!(sent.matched(), 1, "the release and nothing else");
        };
        let second = pass_on(&own, first, second, meanwhile).await;
        assert_eq!(second.release().await.expect("a release"), Release::Released);
    }
}
