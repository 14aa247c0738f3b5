//! Waiting for `redisson`: by message, and by other means when the message does not come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::redisson::{OwnServer, RawRedis, Service, channel};
use crate::support::{
    LONG, at_once, but_for_one_standstill, eventually, fresh_name, granted, options, patient,
    server,
};
use distlock::{Guard, LockError, LockName, Release};
use testbed::{Action, Command, MessageDrop, Times};
use tokio::task::{JoinHandle, JoinSet};

/// What a lost message may cost, as documented.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// For a busy machine.
const SLACK: Duration = Duration::from_secs(5);

fn wait_for(service: &Service, name: &LockName) -> JoinHandle<(Guard, Instant)> {
    let (locks, name) = (service.locks.clone(), name.clone());
    tokio::spawn(async move {
        let guard = granted(&locks, &name, &patient()).await;
        (guard, Instant::now())
    })
}

/// A lock that one process holds while a task of another waits for it and is subscribed.
struct ContendedLock {
    holder: Guard,
    waiter: JoinHandle<(Guard, Instant)>,
    name: LockName,
}

impl ContendedLock {
    async fn new(holder: &Service, waiter: &Service, raw: &RawRedis) -> Self {
        let name = fresh_name();
        let holder = holder.locks.lock(&name, &at_once()).await.expect("the lock");
        let waiter = wait_for(waiter, &name);
        subscribed(raw, &name).await;
        Self { holder, waiter, name }
    }

    /// From the release to the next hold.
    async fn hand_over(self) -> Duration {
        self.hand_over_with(|| {}).await
    }

    /// Hands over as above, and calls `look` as soon as the holder has its answer.
    async fn hand_over_with(self, look: impl FnOnce()) -> Duration {
        let released = Instant::now();
        let outcome = self.holder.release().await;
        look();
        assert_eq!(outcome.expect("a release"), Release::Released);
        let (guard, got) = self.waiter.await.expect("no panic");
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
        got.saturating_duration_since(released)
    }
}

async fn subscribers(raw: &RawRedis, name: &LockName) -> usize {
    let count: (String, usize) = raw.command(&["PUBSUB", "NUMSUB", &channel(name)]).await;
    count.1
}

async fn subscribed(raw: &RawRedis, name: &LockName) {
    eventually("the waiter has subscribed", async || subscribers(raw, name).await == 1).await;
    // It looks once more before it relies on messages.
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_woken_by_the_release_and_not_by_its_own_poll() {
    let url = server().url();
    let (holder, waiter) = (Service::at(url).await, Service::at(url).await);
    let raw = RawRedis::at(url).await;
    let mut followed = 0;
    but_for_one_standstill(async || {
        let mut took = Vec::new();
        for _ in 0..9 {
            let contended = ContendedLock::new(&holder, &waiter, &raw).await;
            let look = || followed = followed.max(holder.server.subscribed_channels());
            took.push(contended.hand_over_with(look).await);
        }
        took.sort();
        println!("hand-off {took:?}");
        if took[4] < POLL_INTERVAL / 4 { Ok(()) } else { Err(format!("{took:?}")) }
    })
    .await;
    // A process that passed the lock on follows its channel, to yield to the others.
    assert!(followed > 0, "it does not");
    eventually("it does so no longer", async || holder.server.subscribed_channels() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_message_costs_at_most_one_poll_interval() {
    let own = OwnServer::start();
    let (holder, waiter) = (own.service().await, own.service().await);
    let raw = own.raw().await;
    own.proxy.drop_messages("redisson_lock__channel", MessageDrop::All);
    for round in 1..=3 {
        let took = ContendedLock::new(&holder, &waiter, &raw).await.hand_over().await;
        println!("without a message: {took:?}");
        assert!(took < POLL_INTERVAL + SLACK, "{took:?}");
        // The waiter may find the lock free before the proxy gets its message.
        eventually("the message is lost", async || own.proxy.counts().messages_dropped >= round)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_connection_lost_at_the_release_costs_at_most_one_poll_interval() {
    let own = OwnServer::start();
    let (holder, waiter) = (own.service().await, own.service().await);
    let raw = own.raw().await;
    for round in 0..6 {
        let contended = ContendedLock::new(&holder, &waiter, &raw).await;
        let name = contended.name.clone();
        match round % 3 {
            0 => own.proxy.cut_subscribers(),
            1 => drop(raw.command::<usize>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await),
            _ => own.proxy.drop_messages("redisson_lock__channel", MessageDrop::Next(1)),
        }
        let took = contended.hand_over().await;
        println!("round {round}: {took:?}");
        assert!(took < POLL_INTERVAL + SLACK, "{took:?}");
        // And it can wait for messages again.
        let again = wait_for(&waiter, &name);
        drop(again.await.expect("no panic"));
        let took = ContendedLock::new(&holder, &waiter, &raw).await.hand_over().await;
        assert!(took < POLL_INTERVAL + SLACK, "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_link_costs_at_most_one_poll_interval_and_is_made_again() {
    let own = OwnServer::start();
    let (holder, waiter) = (own.service().await, own.service().await);
    let raw = own.raw().await;
    let contended = ContendedLock::new(&holder, &waiter, &raw).await;
    // The first sign of life that it asks for is its last: neither side hears anything more.
    let silence = own.proxy.arm(Command::redis("PING"), Action::LoseAnswer, Times::Next(1));
    eventually("the silence has begun", async || silence.fired() == 1).await;
    let took = contended.hand_over().await;
    assert!(took < POLL_INTERVAL + SLACK, "{took:?}");
    eventually("it hears messages again", async || {
        ContendedLock::new(&holder, &waiter, &raw).await.hand_over().await < POLL_INTERVAL / 4
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_waiters_of_a_server_that_restarts_all_get_their_locks() {
    let own = OwnServer::start();
    let (holder, waiters) = (own.service().await, [own.service().await, own.service().await]);
    let raw = own.raw().await;
    let names: Vec<_> = std::iter::repeat_with(fresh_name).take(10).collect();
    let mut holds = Vec::new();
    for name in &names {
        holds.push(holder.locks.lock(name, &at_once()).await.expect("the lock"));
    }
    let mut waiting = JoinSet::new();
    for name in names.iter().flat_map(|name| [name, name]) {
        let (waiters, name) = (waiters.clone(), name.clone());
        let waiter = waiters[waiting.len() % 2].clone();
        waiting.spawn(async move {
            let guard = waiter.locks.lock(&name, &patient()).await.expect("the lock");
            guard.release().await.expect("a release")
        });
    }
    for name in &names {
        eventually("both wait", async || subscribers(&raw, name).await == 2).await;
    }
    own.act(|redis| redis.restart());
    let ends = waiting.join_all().await;
    assert!(ends.iter().all(|end| *end == Release::Released), "{ends:?}");
    drop(holds);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_a_dead_holder_is_taken_over_when_its_lease_ends() {
    let url = server().url();
    let (service, raw, name) = (Service::at(url).await, RawRedis::at(url).await, fresh_name());
    let lease = Duration::from_millis(1500);
    let asked = Instant::now();
    raw.hold_as_redisson(&name, lease).await;
    let held_since = Instant::now();
    let (guard, got) = wait_for(&service, &name).await.expect("no panic");
    assert!(got - asked >= lease, "{:?}", got - asked);
    assert!(got - held_since < lease + SLACK, "{:?}", got - held_since);
    guard.release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_tasks_of_a_process_wait_with_one_subscription_and_all_get_the_lock() {
    let url = server().url();
    let (holder, service) = (Service::at(url).await, Service::at(url).await);
    let (raw, name) = (RawRedis::at(url).await, fresh_name());
    let hold = holder.locks.lock(&name, &at_once()).await.expect("the lock");
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let (locks, name) = (service.locks.clone(), name.clone());
        tasks.spawn(async move {
            let guard = locks.lock(&name, &patient()).await.expect("the lock");
            guard.release().await.expect("a release")
        });
    }
    subscribed(&raw, &name).await;
    assert_eq!(subscribers(&raw, &name).await, 1);
    hold.release().await.expect("a release");
    assert!(tasks.join_all().await.iter().all(|end| *end == Release::Released));
    eventually("nobody is subscribed", async || subscribers(&raw, &name).await == 0).await;
    assert_eq!(service.server.subscribed_channels(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_without_a_wait_does_not_subscribe() {
    let url = server().url();
    let (service, raw) = (Service::at(url).await, RawRedis::at(url).await);
    for _ in 0..100 {
        let name = fresh_name();
        raw.hold_as_redisson(&name, LONG).await;
        let busy = service.locks.lock(&name, &at_once()).await;
        assert!(matches!(busy, Err(LockError::TimedOut { .. })), "{:?}", busy.err());
    }
    assert_eq!(service.server.subscribed_channels(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_waits_that_are_given_up_leave_nothing_and_spoil_nothing() {
    const NAMES: u32 = 10_000;
    let own = OwnServer::start();
    let (service, raw) = (own.service().await, own.raw().await);
    let script = "for i = 1, ARGV[1] do redis.call('HSET', 'lock:' .. i, 'somebody', 1) end";
    raw.command::<()>(&["EVAL", script, "0", &NAMES.to_string()]).await;
    let name = |number| LockName::new(format!("lock:{number}")).expect("a name");
    let mut tasks = JoinSet::new();
    for first in 1..=100 {
        let locks = service.locks.clone();
        tasks.spawn(async move {
            for number in (first..=NAMES).step_by(100) {
                // Some give up before they are subscribed, some while that is under way.
                let wait = options(Duration::from_millis(u64::from(number % 10)), LONG);
                let outcome = locks.lock(&name(number), &wait).await.map(drop);
                assert!(matches!(outcome, Err(LockError::TimedOut { .. })), "{outcome:?}");
            }
        });
    }
    tasks.join_all().await;
    eventually("no channel is left", async || {
        let channels: Vec<String> = raw.command(&["PUBSUB", "CHANNELS"]).await;
        channels.is_empty() && service.server.subscribed_channels() == 0
    })
    .await;
    for number in [1, 3, 200, 5_000, NAMES] {
        let name = name(number);
        let waiter = wait_for(&service, &name);
        eventually("it has subscribed", async || subscribers(&raw, &name).await == 1).await;
        assert_eq!(raw.release_as_redisson(&name).await, 1);
        drop(waiter.await.expect("no panic"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_under_saturation_get_similar_shares() {
    for _ in 0..5 {
        // Who is in its turn when all stands still has that for more than its share.
        but_for_one_standstill(async || {
            let mut turns = saturate(Duration::from_millis(700)).await;
            turns.sort_unstable();
            println!("turns {turns:?}");
            let is_fair = turns[0] > 0 && turns[2] <= 2 * turns[0];
            if is_fair { Ok(()) } else { Err(format!("{turns:?}")) }
        })
        .await;
    }
}

/// How often each of three processes gets the lock when four tasks of each want it all the time; it
/// is held by one at a time.
async fn saturate(length: Duration) -> Vec<u32> {
    let name = fresh_name();
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(Service::at(server().url()).await);
    }
    let until = Instant::now() + length;
    let inside = Arc::<AtomicU32>::default();
    let mut shares = Vec::new();
    for service in processes {
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let (locks, name) = (service.locks.clone(), name.clone());
            let inside = Arc::clone(&inside);
            tasks.spawn(async move {
                let mut turns = 0;
                while Instant::now() < until {
                    let guard = locks.lock(&name, &patient()).await.expect("the lock");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.expect("a release");
                    turns += 1;
                }
                turns
            });
        }
        shares.push(tasks);
    }
    let mut turns = Vec::new();
    for tasks in shares {
        turns.push(tasks.join_all().await.iter().sum());
    }
    turns
}
