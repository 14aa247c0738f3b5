//! `Semaphore` on a real Redis. Several servers, each with a connection of its own, are several
//! processes as far as Redis can see.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::dropped::up_to;
use crate::support::ran::ran;
use crate::support::synchronizers::{Client, LOOK, OwnServer, PATIENT, process};
use crate::support::{Look, but_for_one_standstill, eventually, fresh_name};
use distlock::{
    CountdownLatch, ExpirableSemaphore, LockError, LockName, Permits, RedisServer, Release,
    Semaphore,
};
use futures_util::future::join_all;
use testbed::Command;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const CHANNEL: &str = "distlock_semaphore_channel";
const ZERO: Duration = Duration::ZERO;

/// The semaphore of that name, as that process sees it, with this number of permits.
async fn semaphore(process: &RedisServer, name: &LockName, permits: u32) -> Semaphore {
    let semaphore = Semaphore::new(process, name.clone());
    semaphore.try_set_permits(permits).await.expect("an answer");
    semaphore
}

async fn fresh(permits: u32) -> Semaphore {
    semaphore(&process().await, &fresh_name(), permits).await
}

async fn assert_free(semaphore: &Semaphore, permits: u32, what: &str) {
    semaphore.flush().await;
    assert_eq!(semaphore.available().await.expect("an answer"), permits, "{what}");
}

/// A section that notices how many permits are in use at once.
#[derive(Default)]
struct Section {
    inside: AtomicU32,
    most: AtomicU32,
}

impl Section {
    async fn visit(&self, permits: u32) {
        let inside = self.inside.fetch_add(permits, Ordering::SeqCst) + permits;
        self.most.fetch_max(inside, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.inside.fetch_sub(permits, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_the_permits_that_were_set_are_held_and_all_are_given_back() {
    let (name, section) = (fresh_name(), Arc::<Section>::default());
    let mut tasks = JoinSet::new();
    for task in 0..24 {
        let semaphore = semaphore(&process().await, &name, 4).await;
        let section = Arc::clone(&section);
        tasks.spawn(async move {
            for round in 0..6 {
                let permits = (task + round) % 3 + 1;
                let held = semaphore.acquire(permits, PATIENT).await.expect("permits");
                assert_eq!(held.count(), permits);
                section.visit(permits).await;
                if round % 2 == 0 {
                    assert_eq!(held.release().await.expect("an answer"), Release::Released);
                }
            }
            semaphore.flush().await;
        });
    }
    tasks.join_all().await;
    let most = section.most.load(Ordering::SeqCst);
    assert!(most <= 4 && most > 1, "{most} of 4 permits were out at once");
    assert_free(&semaphore(&process().await, &name, 9).await, 4, "in the end").await;
    // The section tells if there are more: one task begins all of these before it ends one.
    join_all((0..8).map(|_| section.visit(1))).await;
    assert!(section.most.load(Ordering::SeqCst) > 4);
}

#[tokio::test]
async fn permits_are_set_once_taken_and_given_back() {
    let (name, client) = (fresh_name(), Client::here().await);
    let (first, second) = (process().await, process().await);
    let (first, second) =
        (Semaphore::new(&first, name.clone()), Semaphore::new(&second, name.clone()));
    assert_eq!(first.available().await.expect("an answer"), 0);
    assert!(first.try_acquire(1).await.expect("an answer").is_none(), "nobody has set any");
    assert!(first.try_set_permits(5).await.expect("an answer"));
    assert!(!second.try_set_permits(7).await.expect("an answer"), "they are set");

    let two = first.try_acquire(2).await.expect("an answer").expect("free permits");
    assert!(second.try_acquire(4).await.expect("an answer").is_none(), "all or none");
    let three = second.try_acquire(3).await.expect("an answer").expect("free permits");
    assert!(second.try_acquire(1).await.expect("an answer").is_none());
    assert_eq!(two.release().await.expect("an answer"), Release::Released);
    assert_eq!(three.forget(), 3);
    assert_free(&second, 2, "three were forgotten").await;
    assert_eq!(first.release(3).await.expect("an answer"), Release::Released);

    let all = first.drain().await.expect("an answer");
    assert_eq!((all.count(), first.available().await.expect("an answer")), (5, 0));
    let none = second.drain().await.expect("an answer");
    assert_eq!(none.count(), 0);
    drop(none);
    drop(all);
    assert_free(&first, 5, "what was drained comes back").await;
    let mut left = client.keys(&name).await;
    left.retain(|key| key != name.as_str());
    assert_eq!(left.len(), 1, "only that of those that were forgotten: {left:?}");
    assert!(client.command::<i64>(&["TTL", &left[0]]).await > 0, "it ends by itself");
}

#[tokio::test]
async fn permits_of_a_semaphore_that_was_removed_do_not_swell_the_next_one() {
    let (semaphore, client) = (fresh(3).await, Client::here().await);
    let stale = semaphore.acquire(2, ZERO).await.expect("permits");
    assert!(semaphore.delete().await.expect("an answer"));
    assert!(!semaphore.delete().await.expect("an answer"));
    assert_eq!(semaphore.release(1).await.expect("an answer"), Release::Gone);
    let gone = semaphore.available().await.expect("an answer");
    assert_eq!(gone, 0, "a release makes no semaphore");
    assert!(semaphore.try_set_permits(3).await.expect("an answer"));
    assert_eq!(stale.release().await.expect("an answer"), Release::Gone);
    assert_free(&semaphore, 3, "as it was set").await;

    // The same when it is the server that forgets.
    let own_name = fresh_name();
    let own = Semaphore::new(&process().await, own_name.clone());
    own.try_set_permits(2).await.expect("an answer");
    let stale = own.acquire(2, ZERO).await.expect("permits");
    client.command::<()>(&["DEL", own_name.as_str()]).await;
    own.try_set_permits(2).await.expect("an answer");
    drop(stale);
    assert_free(&own, 2, "as it was set").await;
}

#[tokio::test]
async fn a_wait_is_bounded_and_no_wait_is_one_question() {
    let process = process().await;
    let semaphore = semaphore(&process, &fresh_name(), 2).await;
    let held = semaphore.acquire(1, ZERO).await.expect("a permit");
    assert!(semaphore.try_acquire(2).await.expect("an answer").is_none());
    assert_eq!(process.subscribed_channels(), 0, "who does not wait subscribes to nothing");
    // The second also queues behind the first.
    let wait = Duration::from_millis(250);
    but_for_one_standstill(async || {
        let waited = tokio::join!(semaphore.acquire(2, wait), semaphore.acquire(2, wait));
        for outcome in [waited.0, waited.1] {
            match outcome {
                Err(LockError::TimedOut { waited, .. }) if waited < wait + LOOK => {
                    assert!(waited >= wait, "{waited:?}");
                }
                Err(LockError::TimedOut { waited, .. }) => return Err(format!("{waited:?}")),
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    })
    .await;
    drop(held);
    assert_free(&semaphore, 2, "waiting took nothing").await;
    eventually("no channel is left", async || process.subscribed_channels() == 0).await;
}

/// Waiters that say in which order they got their permits, each queued before the next one starts.
async fn queue(semaphore: &Semaphore, wishes: &[u32]) -> mpsc::Receiver<(usize, Permits)> {
    let (got, order) = mpsc::channel(wishes.len());
    for (number, permits) in wishes.iter().copied().enumerate() {
        let (semaphore, got) = (semaphore.clone(), got.clone());
        tokio::spawn(async move {
            let permits = semaphore.acquire(permits, PATIENT).await.expect("permits");
            got.send((number, permits)).await.expect("somebody listens");
        });
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    order
}

#[tokio::test]
async fn tasks_of_a_process_get_permits_in_the_order_of_arrival() {
    let semaphore = fresh(3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(semaphore.acquire(1, ZERO).await.expect("a permit"));
    }
    // The first wants all, so small requests could overtake it for ever.
    let mut order = queue(&semaphore, &[3, 1, 1, 2, 1]).await;
    for permit in held {
        assert!(order.try_recv().is_err(), "there are not yet so many");
        assert_eq!(permit.release().await.expect("an answer"), Release::Released);
    }
    for expected in 0..5 {
        let (number, permits) = order.recv().await.expect("a waiter");
        assert_eq!(number, expected);
        drop(permits);
    }
    assert_free(&semaphore, 3, "in the end").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_wakes_one_waiter_of_each_process_and_no_herd() {
    but_for_one_standstill(wakes_no_herd).await;
}

async fn wakes_no_herd() -> Result<(), String> {
    let (own, name) = (OwnServer::start(), fresh_name());
    let client = Client::at(own.redis.url()).await;
    let holder = semaphore(&own.undisturbed().await, &name, 3).await;
    let held = holder.acquire(3, ZERO).await.expect("permits");
    let asked = own.proxy.watch(Command::redis("EVALSHA").when(|parts| parts[2] == b"2"));
    let (got, mut order) = mpsc::channel(32);
    for _ in 0..2 {
        let process = own.process().await;
        for _ in 0..16 {
            let (semaphore, got) = (Semaphore::new(&process, name.clone()), got.clone());
            tokio::spawn(async move {
                let permits = semaphore.acquire(1, PATIENT).await.expect("a permit");
                got.send(permits).await.expect("somebody listens");
            });
        }
    }
    drop(got);
    eventually("both wait", async || client.subscribers(CHANNEL, &name).await == 2).await;
    eventually("all have asked", async || asked.matched() >= 2).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (before, started, ran_before) = (asked.matched(), Instant::now(), ran());
    assert_eq!(held.release().await.expect("an answer"), Release::Released);
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.push(order.recv().await.expect("a waiter"));
    }
    let (took, questions) = (started.elapsed(), asked.matched() - before);
    let ran = ran().saturating_sub(ran_before);
    println!("{questions} questions of 32 waiters for 3 permits, in {took:?}");
    // Each permit one, and one of each process that finds none; and both heads look every second.
    let looks = 2 * (1 + took.as_secs());
    assert!(questions <= 3 + 2 + looks, "{questions} of 32 waiters asked");
    assert!(order.try_recv().is_err(), "the others wait");
    if ran < LOOK / 2 { Ok(()) } else { Err(format!("not woken, but by its own look: {ran:?}")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_dropped_at_any_point_leaves_nothing_behind() {
    let (name, second) = (fresh_name(), process().await);
    let first = semaphore(&process().await, &name, 3).await;
    let second = Semaphore::new(&second, name.clone());
    let mut dropped = 0;
    for round in 0..40 {
        let polls = round % 4 + 1;
        let done = up_to(polls, first.acquire(2, PATIENT)).await;
        dropped += u32::from(done.is_none());
        drop(done);
        assert_free(&first, 3, &format!("free permits, {polls} polls")).await;
    }
    assert!(dropped >= 5, "only {dropped} were dropped half way");
    for polls in 1..12 {
        let held = second.acquire(2, ZERO).await.expect("permits");
        let waiting = up_to(polls, first.acquire(2, Duration::from_millis(300))).await;
        // After the last look its time is over.
        let got = matches!(waiting, Some(Ok(_)));
        assert!(!got, "there are not so many");
        assert_eq!(held.release().await.expect("an answer"), Release::Released);
        assert_free(&first, 3, &format!("no free permits, {polls} polls")).await;
    }
    // One that is dropped while it is woken does not keep the others waiting.
    for polls in 1..8 {
        let held = second.acquire(3, ZERO).await.expect("permits");
        let (waiter, releaser) = (first.clone(), first.clone());
        let heir = tokio::spawn(async move { waiter.acquire(3, PATIENT).await.is_ok() });
        let waiting = up_to(polls, async move {
            let _permits = releaser.acquire(1, PATIENT).await;
        });
        let (_gone, outcome) = tokio::join!(waiting, held.release());
        assert_eq!(outcome.expect("an answer"), Release::Released);
        assert!(heir.await.expect("no panic"), "{polls} polls");
        assert_free(&first, 3, &format!("woken, {polls} polls")).await;
    }
}

#[tokio::test]
async fn a_release_dropped_at_any_point_gives_back_once() {
    let semaphore = fresh(3).await;
    for polls in 1..4 {
        let held = semaphore.acquire(2, ZERO).await.expect("permits");
        drop(up_to(polls, held.release()).await);
        assert_free(&semaphore, 3, &format!("{polls} polls")).await;
        let held = semaphore.acquire(2, ZERO).await.expect("permits");
        held.forget();
        drop(up_to(polls, semaphore.release(2)).await);
        assert_free(&semaphore, 3, &format!("{polls} polls, forgotten")).await;
    }
}

#[tokio::test]
async fn permits_of_a_task_that_panics_are_given_back() {
    let semaphore = fresh(1).await;
    for _ in 0..10 {
        let holder = semaphore.clone();
        let task = tokio::spawn(async move {
            let _held = holder.acquire(1, PATIENT).await.expect("a permit");
            panic!("as expected");
        });
        assert!(task.await.is_err());
    }
    assert_free(&semaphore, 1, "after ten panics").await;
}

#[tokio::test]
async fn a_holder_that_dies_keeps_its_permits_for_ever() {
    // The known flaw: nothing ends them. `ExpirableSemaphore` has leases.
    let (name, client) = (fresh_name(), Client::here().await);
    let semaphore = semaphore(&process().await, &name, 2).await;
    let _undead = std::mem::ManuallyDrop::new(semaphore.acquire(1, ZERO).await.expect("a permit"));
    let wait = Duration::from_millis(300);
    assert!(matches!(semaphore.acquire(2, wait).await, Err(LockError::TimedOut { .. })));
    assert_eq!(client.command::<i64>(&["TTL", name.as_str()]).await, -1, "nothing ends it");
    // Only an operator can repair that.
    assert_eq!(semaphore.release(1).await.expect("an answer"), Release::Released);
    assert_free(&semaphore, 2, "given by hand").await;
}

fn is_bad(outcome: Result<(), LockError>, expected: &str) {
    match outcome {
        Err(LockError::BadRequest { field, .. }) => assert_eq!(field, expected),
        other => panic!("{expected}: {other:?}"),
    }
}

#[tokio::test]
async fn numbers_and_waits_that_make_no_sense_are_refused() {
    let (semaphore, most) = (fresh(1).await, 2_147_483_647);
    is_bad(semaphore.try_set_permits(most + 1).await.map(drop), "permits");
    for permits in [0, most + 1, u32::MAX] {
        is_bad(semaphore.acquire(permits, ZERO).await.map(drop), "permits");
        is_bad(semaphore.release(permits).await.map(drop), "permits");
    }
    is_bad(semaphore.acquire(1, Duration::MAX).await.map(drop), "wait");
    is_bad(semaphore.release(most).await.map(drop), "permits");
    assert_free(&semaphore, 1, "as it was").await;
}

#[tokio::test]
async fn a_name_in_use_by_another_kind_is_an_error_and_stays_as_it_is() {
    let (process, name, client) = (process().await, fresh_name(), Client::here().await);
    let semaphore = Semaphore::new(&process, name.clone());
    let expirable = ExpirableSemaphore::new(&process, name.clone());
    let latch = CountdownLatch::new(&process, name.clone());
    let look = Look::at(crate::support::server().url()).await;
    for other in ["a lock", "a hash", "an expirable semaphore", "a latch"] {
        look.delete(&name).await;
        match other {
            "a lock" => look.set(&name, "17").await,
            "a hash" => look.make_hash(&name).await,
            "a latch" => assert!(latch.try_set_count(1).await.expect("an answer")),
            _ => assert!(expirable.try_set_permits(1).await.expect("an answer")),
        }
        let before = client.state(&name).await;
        for outcome in [
            semaphore.try_set_permits(1).await.map(drop),
            semaphore.acquire(1, PATIENT).await.map(drop),
            semaphore.drain().await.map(drop),
            semaphore.release(1).await.map(drop),
            semaphore.available().await.map(drop),
            semaphore.delete().await.map(drop),
        ] {
            assert!(matches!(outcome, Err(LockError::HeldByOtherKind)), "{other}: {outcome:?}");
        }
        assert_eq!(client.state(&name).await, before, "{other}");
    }
}
