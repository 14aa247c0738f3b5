//! `ExpirableSemaphore` on a real Redis. Several servers, each with a connection of its own, are
//! several processes as far as Redis can see.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::dropped::up_to;
use crate::support::ran::ran;
use crate::support::synchronizers::{Client, LOOK, PATIENT, SLACK, process};
use crate::support::{LONG, Look, answered, but_for_one_standstill, eventually, fresh_name};
use distlock::{
    ExpirableSemaphore, Lease, LockError, LockName, LossCause, Owner, Permit, RedisServer, Release,
    Semaphore,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const CHANNEL: &str = "distlock_permits_channel";
const ZERO: Duration = Duration::ZERO;
/// A lease that does not end in a test.
const FIXED: Lease = Lease::Fixed(LONG);
const SHORT: Duration = Duration::from_millis(300);
/// Renewed in time also on a busy machine.
const LEASE: Duration = Duration::from_millis(3600);

async fn semaphore(process: &RedisServer, name: &LockName, permits: u32) -> ExpirableSemaphore {
    let semaphore = ExpirableSemaphore::new(process, name.clone());
    semaphore.try_set_permits(permits).await.expect("an answer");
    semaphore
}

async fn fresh(permits: u32) -> ExpirableSemaphore {
    semaphore(&process().await, &fresh_name(), permits).await
}

async fn taken(semaphore: &ExpirableSemaphore, lease: Lease) -> Permit {
    answered(async || semaphore.try_acquire(lease).await).await.expect("a free permit")
}

async fn free(semaphore: &ExpirableSemaphore) -> u32 {
    semaphore.available().await.expect("an answer")
}

async fn assert_free(semaphore: &ExpirableSemaphore, permits: u32, what: &str) {
    semaphore.flush().await;
    assert_eq!(free(semaphore).await, permits, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_the_permits_that_were_set_are_held_and_all_are_given_back() {
    let (name, inside, most) = (fresh_name(), Arc::<AtomicU32>::default(), Arc::default());
    let mut tasks = JoinSet::new();
    for task in 0..24 {
        let semaphore = semaphore(&process().await, &name, 3).await;
        let (inside, most) = (Arc::clone(&inside), Arc::<AtomicU32>::clone(&most));
        tasks.spawn(async move {
            for round in 0..6 {
                let permit = semaphore.acquire(PATIENT, FIXED).await.expect("a permit");
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_millis(1)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(!permit.is_lost());
                if (task + round) % 2 == 0 {
                    assert_eq!(permit.release().await.expect("an answer"), Release::Released);
                }
            }
            semaphore.flush().await;
        });
    }
    tasks.join_all().await;
    let most = most.load(Ordering::SeqCst);
    assert!(most <= 3 && most > 1, "{most} of 3 permits were out at once");
    assert_free(&semaphore(&process().await, &name, 9).await, 3, "in the end").await;
}

#[tokio::test]
async fn permits_have_ids_of_their_own_and_are_set_once() {
    let (name, client) = (fresh_name(), Client::here().await);
    let first = ExpirableSemaphore::new(&process().await, name.clone());
    let second = ExpirableSemaphore::new(&process().await, name.clone());
    assert!(first.try_acquire(FIXED).await.expect("an answer").is_none(), "nobody has set any");
    assert!(first.try_set_permits(2).await.expect("an answer"));
    assert!(!second.try_set_permits(9).await.expect("an answer"), "they are set");
    let (one, other) = (taken(&first, FIXED).await, taken(&second, FIXED).await);
    assert_ne!(one.id(), other.id());
    assert_eq!(free(&first).await, 0);
    assert!(first.try_acquire(FIXED).await.expect("an answer").is_none());
    assert_eq!(one.release().await.expect("an answer"), Release::Released);
    drop(other);
    assert_free(&second, 2, "released and dropped").await;
    eventually("nothing is left but the semaphore", async || {
        client.keys(&name).await == [name.as_str()]
    })
    .await;
    assert!(first.delete().await.expect("an answer"));
    assert!(!first.delete().await.expect("an answer"));
    assert_eq!(free(&first).await, 0);
}

#[tokio::test]
async fn a_permit_released_twice_is_an_error() {
    let semaphore = fresh(3).await;
    let _other = taken(&semaphore, FIXED).await;
    let not_out =
        async |id: &Owner| matches!(semaphore.release(id).await, Err(LockError::NotOwner));
    let permit = taken(&semaphore, FIXED).await;
    let id = permit.id().clone();
    assert_eq!(permit.release().await.expect("an answer"), Release::Released);
    assert!(not_out(&id).await, "it was given back");

    // Any process may release it by its id.
    let id = taken(&semaphore, FIXED).await.into_id();
    assert_eq!(free(&semaphore).await, 1, "it is still out");
    semaphore.release(&id).await.expect("it is out");
    assert!(not_out(&id).await, "it was given back");

    // Another process releases it behind the holder's back.
    let permit = taken(&semaphore, FIXED).await;
    semaphore.release(permit.id()).await.expect("it is out");
    assert_eq!(permit.release().await.expect("an answer"), Release::Gone);

    // Its lease has ended, and it was taken back or not.
    for retaken in [false, true] {
        let permit = taken(&semaphore, Lease::Fixed(SHORT)).await;
        permit.lost().await;
        eventually("it has ended there", async || free(&semaphore).await == 2).await;
        if retaken {
            drop(taken(&semaphore, FIXED).await);
        }
        assert!(not_out(permit.id()).await, "its lease has ended");
        assert_eq!(permit.release().await.expect("an answer"), Release::Gone);
    }
    assert!(not_out(&Owner::fresh()).await, "it never was");
    assert_free(&semaphore, 2, "in the end").await;
}

#[tokio::test]
async fn permits_whose_leases_have_ended_are_taken_back_first_and_waiters_know_when() {
    let semaphore = fresh(2).await;
    let _long = taken(&semaphore, FIXED).await;
    // Their holders die without a message.
    for lease in [SHORT, SHORT * 3 / 2] {
        but_for_one_standstill(async || {
            let (started, ran_before) = (Instant::now(), ran());
            let _undead = ManuallyDrop::new(taken(&semaphore, Lease::Fixed(lease)).await);
            let heir = semaphore.acquire(PATIENT, FIXED).await.expect("a permit");
            let took = started.elapsed();
            println!("a lease of {lease:?}: free after {took:?}");
            let ran = ran().saturating_sub(ran_before);
            assert!(took >= lease, "{took:?}");
            assert_eq!(heir.release().await.expect("an answer"), Release::Released);
            if ran < LOOK { Ok(()) } else { Err(format!("{took:?}, {ran:?}")) }
        })
        .await;
    }
    let _undead = ManuallyDrop::new(taken(&semaphore, Lease::Fixed(SHORT)).await);
    eventually("it is free again", async || free(&semaphore).await == 1).await;
}

#[tokio::test]
async fn a_renewed_permit_outlives_its_lease_and_its_renewal_ends_with_it() {
    let (name, client) = (fresh_name(), Client::here().await);
    let semaphore = semaphore(&process().await, &name, 9).await;
    let held = [
        taken(&semaphore, Lease::Renewed(LEASE)).await,
        taken(&semaphore, Lease::Renewed(LEASE * 2)).await,
    ];
    let released = taken(&semaphore, Lease::Renewed(LEASE)).await;
    let left_alone = taken(&semaphore, Lease::Renewed(LEASE)).await;
    assert_eq!(released.release().await.expect("an answer"), Release::Released);
    let left_alone = left_alone.into_id();
    sleep(LEASE * 3).await;
    assert!(held.iter().all(|permit| !permit.is_lost()));
    assert_eq!(free(&semaphore).await, 7, "those two are out");
    assert!(matches!(semaphore.release(&left_alone).await, Err(LockError::NotOwner)));
    let key = format!("distlock_permits:{{{name}}}");
    client.command::<()>(&["DEL", &key]).await;
    for permit in held {
        let cause = timeout(PATIENT, permit.lost()).await.expect("it is told");
        assert_eq!(cause, LossCause::Taken, "the server says so");
        assert_eq!(permit.release().await.expect("an answer"), Release::Gone);
    }
    assert_free(&semaphore, 9, "in the end").await;
}

#[tokio::test]
async fn a_holder_that_does_not_notice_the_end_of_its_lease_works_on_beside_its_successor() {
    // The known flaw: all that a lease can do is tell.
    let semaphore = fresh(1).await;
    let paused = taken(&semaphore, Lease::Fixed(SHORT)).await;
    let successor = semaphore.acquire(PATIENT, FIXED).await.expect("a permit");
    assert!(paused.is_lost() && !successor.is_lost());
    assert_eq!(paused.release().await.expect("an answer"), Release::Gone);
    assert_eq!(free(&semaphore).await, 0, "the late release took nothing from the successor");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_wakes_waiters_by_message() {
    let (name, client) = (fresh_name(), Client::here().await);
    let holder = semaphore(&process().await, &name, 1).await;
    for by_id in [false, true] {
        but_for_one_standstill(async || is_woken(&holder, (&client, &name), by_id).await).await;
    }
}

async fn is_woken(
    holder: &ExpirableSemaphore,
    (client, name): (&Client, &LockName),
    by_id: bool,
) -> Result<(), String> {
    let held = taken(holder, FIXED).await;
    let waiting = semaphore(&process().await, name, 1).await;
    let waiter = tokio::spawn(async move {
        let permit = waiting.acquire(PATIENT, FIXED).await.expect("a permit");
        (permit, ran())
    });
    eventually("it waits", async || client.subscribers(CHANNEL, name).await == 1).await;
    sleep(Duration::from_millis(50)).await;
    let released = ran();
    if by_id {
        let id = held.into_id();
        holder.release(&id).await.expect("it is out");
    } else {
        assert_eq!(held.release().await.expect("an answer"), Release::Released);
    }
    let (permit, got) = waiter.await.expect("no panic");
    let took = got.saturating_sub(released);
    println!("handed over after {took:?}");
    assert_eq!(permit.release().await.expect("an answer"), Release::Released);
    eventually("no channel is left", async || client.subscribers(CHANNEL, name).await == 0).await;
    let is_told = took < LOOK / 2;
    if is_told { Ok(()) } else { Err(format!("not woken, but by its own look: {took:?}")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_or_release_dropped_at_any_point_leaves_nothing_behind() {
    let (name, second) = (fresh_name(), process().await);
    let first = semaphore(&process().await, &name, 1).await;
    let second = ExpirableSemaphore::new(&second, name.clone());
    for round in 0..40 {
        let polls = round % 4 + 1;
        let lease = if round % 8 < 4 { FIXED } else { Lease::Renewed(LONG) };
        drop(up_to(polls, first.acquire(PATIENT, lease)).await);
        assert_free(&first, 1, &format!("a free permit, {polls} polls")).await;
        let held = taken(&first, lease).await;
        drop(up_to(polls, held.release()).await);
        assert_free(&first, 1, &format!("a release, {polls} polls")).await;
        let id = taken(&first, lease).await.into_id();
        drop(up_to(polls, first.release(&id)).await);
        assert_free(&first, 1, &format!("a release by id, {polls} polls")).await;
    }
    for polls in 1..12 {
        let held = taken(&second, FIXED).await;
        let waiting = up_to(polls, first.acquire(SHORT, FIXED)).await;
        assert!(!matches!(waiting, Some(Ok(_))), "there is none");
        assert_eq!(held.release().await.expect("an answer"), Release::Released);
        assert_free(&first, 1, &format!("no free permit, {polls} polls")).await;
    }
}

#[tokio::test]
async fn waits_and_leases_are_bounded() {
    let semaphore = fresh(1).await;
    let _held = taken(&semaphore, FIXED).await;
    match semaphore.acquire(SHORT, FIXED).await {
        Err(LockError::TimedOut { waited, .. }) => {
            assert!(waited >= SHORT && waited < SHORT + SLACK);
        }
        other => panic!("{other:?}"),
    }
    let (ms, day) = (Duration::from_millis(1), Duration::from_hours(24));
    for (wait, lease, expected) in [
        (ZERO, Lease::Fixed(ZERO), "lease"),
        (ZERO, Lease::Renewed(9 * ms), "lease"),
        (ZERO, Lease::Fixed(day + ms), "lease"),
        (day + ms, FIXED, "wait"),
    ] {
        match semaphore.acquire(wait, lease).await {
            Err(LockError::BadRequest { field, .. }) => assert_eq!(field, expected),
            other => panic!("{other:?}"),
        }
    }
    for permits in [0, 2_147_483_648] {
        let refused = semaphore.try_set_permits(permits).await;
        assert!(matches!(refused, Err(LockError::BadRequest { field: "permits", .. })));
    }
}

#[tokio::test]
async fn a_name_in_use_by_another_kind_is_an_error_and_stays_as_it_is() {
    let (process, name, client) = (process().await, fresh_name(), Client::here().await);
    let expirable = ExpirableSemaphore::new(&process, name.clone());
    let look = Look::at(crate::support::server().url()).await;
    for other in ["a lock", "a hash", "a semaphore"] {
        look.delete(&name).await;
        match other {
            "a lock" => look.set(&name, "17").await,
            "a hash" => look.make_hash(&name).await,
            _ => {
                let semaphore = Semaphore::new(&process, name.clone());
                assert!(semaphore.try_set_permits(1).await.expect("an answer"));
            }
        }
        let before = client.state(&name).await;
        for outcome in [
            expirable.try_set_permits(1).await.map(drop),
            expirable.acquire(PATIENT, FIXED).await.map(drop),
            expirable.available().await.map(drop),
            expirable.delete().await.map(drop),
        ] {
            assert!(matches!(outcome, Err(LockError::HeldByOtherKind)), "{other}: {outcome:?}");
        }
        assert_eq!(client.state(&name).await, before, "{other}");
    }
}
