//! What is seen of locks from outside, and what freeing them by force does.

use std::time::{Duration, Instant};

use conformance::listed;
use distlock::{
    Guarantees, Guard, HoldKind, LockError, LockHolder, LockName, LockOptions, LockSnapshot,
    LockState, LockWaiter, LockWaiters, Locks, OwnerTag, Release, RemainingLease,
};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::arena::{
    Applicability, Arena, Check, LONG, SHORT, SLACK, Subject, fresh_name, has_lease, of_servers,
};

/// What a server's clock and ours may differ by in the time of one lease.
const CLOCK_ERROR: Duration = Duration::from_millis(200);

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "inspection_shows_a_held_lock_with_its_holder_and_a_free_one_as_free",
        asked: of_servers,
        run: a_held_lock_is_shown,
    },
    Check {
        name: "inspection_frees_by_force_and_a_waiter_enters",
        asked: of_servers,
        run: a_waiter_gets_it,
    },
    Check {
        name: "inspection_again_and_again_does_not_keep_a_lock",
        asked: with_a_lease_on_the_server,
        run: reading_keeps_nothing,
    },
    Check {
        name: "inspection_names_the_holder_and_its_process_to_a_waiter_that_times_out",
        asked: of_servers_that_know_their_holder,
        run: a_time_out_names_the_holder,
    },
    Check {
        name: "inspection_names_the_process_of_a_waiter",
        asked: with_tagged_waiters,
        run: a_waiter_is_named,
    },
];

/// Of kinds on servers, except those whose transaction is the lock.
fn of_servers_that_know_their_holder(subject: &Subject) -> Applicability {
    match of_servers(subject) {
        Applicability::Yes => Applicability::of_those_that(
            !is_shown_to_waiters_only(&subject.promise),
            "shows its holder only while another waits",
        ),
        no @ Applicability::No(_) => no,
    }
}

/// Of kinds whose servers store the owner of a waiter.
fn with_tagged_waiters(subject: &Subject) -> Applicability {
    let kinds = ["fair", "read-write", "zookeeper", "etcd"];
    Applicability::of_those_that(
        kinds.contains(&subject.kind.as_str()),
        "stores no owner of a waiter",
    )
}

/// Of kinds whose leases end by the server's clock.
fn with_a_lease_on_the_server(subject: &Subject) -> Applicability {
    Applicability::of_those_that(
        has_lease(&subject.promise) && subject.kind.as_str() != "getset-timestamp",
        "has no lease on the server",
    )
}

/// `MariaDB` shows the transaction that holds a row only while another waits for it.
fn is_shown_to_waiters_only(promise: &Guarantees) -> bool {
    promise.hold == HoldKind::Transaction
}

/// The first look at the lock that is as it is waited for. The next one may already differ.
async fn until(
    locks: &Locks,
    name: &LockName,
    holds: impl Fn(&LockSnapshot) -> bool,
) -> LockSnapshot {
    let deadline = Instant::now() + LONG;
    loop {
        let seen = locks.inspect(name).await.expect("an answer");
        if holds(&seen) {
            return seen;
        }
        assert!(Instant::now() < deadline, "last seen: {seen:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The waiters that the server knows.
fn waiters(seen: &LockSnapshot) -> &[LockWaiter] {
    match &seen.waiters {
        LockWaiters::Unknown => &[],
        LockWaiters::Ordered(waiters) | LockWaiters::Unordered(waiters) => waiters,
    }
}

fn wait_for(
    locks: &Locks,
    name: &LockName,
    options: LockOptions,
) -> JoinHandle<Result<Guard, LockError>> {
    let (locks, name) = (locks.clone(), name.clone());
    tokio::spawn(async move { locks.lock(&name, &options).await })
}

/// The only holder, once it is shown.
async fn the_holder(locks: &Locks, name: &LockName) -> LockHolder {
    let seen = until(locks, name, |seen| matches!(seen.state, LockState::Held(_))).await;
    let LockState::Held(holders) = seen.state else { panic!("not held any more: {seen:?}") };
    let [holder] = &holders[..] else { panic!("more than one holder: {holders:?}") };
    holder.clone()
}

fn a_held_lock_is_shown(arena: &Arena) {
    arena.run(async || {
        let (locks, others) = arena.two_locks().await;
        let name = fresh_name();
        let free = others.inspect(&name).await.expect("an answer");
        assert_eq!((free.kind, &free.state), (arena.kind.as_str(), &LockState::Free));

        let guard = locks.lock(&name, &arena.options(Duration::ZERO)).await.expect("it is free");
        let waits = is_shown_to_waiters_only(&arena.promise)
            .then(|| wait_for(&others, &name, arena.options(LONG)));
        let holder = the_holder(&others, &name).await;
        if let Some(owner) = &holder.owner {
            assert_eq!(owner, guard.owner().as_str());
        }
        match holder.lease {
            RemainingLease::Ends(left) => assert!(left <= LONG && !left.is_zero(), "{left:?}"),
            RemainingLease::ClientClock(until_ms) => assert!(until_ms > 0),
            RemainingLease::Session => assert_ne!(arena.promise.hold, HoldKind::Lease),
            RemainingLease::NoExpiry => panic!("it has a lease or a session: {holder:?}"),
        }
        assert_eq!(guard.token().is_some(), holder.token.is_some(), "{holder:?}");
        match listed(&others, name.as_str()).await {
            Ok(names) => assert_eq!(names, [name.as_str()]),
            Err(error) => assert!(error.to_string().contains("hashes of names"), "{error}"),
        }

        guard.release().await.expect("a release");
        if let Some(waits) = waits {
            let guard = waits.await.expect("no panic").expect("the lock");
            guard.release().await.expect("a release");
        }
        let is_free = |seen: &LockSnapshot| seen.state == LockState::Free;
        if is_shown_to_waiters_only(&arena.promise) {
            // Locks of other checks make it unknown whether this row is locked.
            let seen = others.inspect(&name).await.expect("an answer");
            assert!(!matches!(seen.state, LockState::Held(_)), "{seen:?}");
        } else {
            until(&others, &name, is_free).await;
            let names = listed(&others, name.as_str()).await.unwrap_or_default();
            assert!(names.is_empty(), "{names:?}");
        }
    });
}

fn a_waiter_gets_it(arena: &Arena) {
    arena.run(async || {
        let (locks, others) = arena.two_locks().await;
        let name = fresh_name();
        let guard = locks.lock(&name, &arena.options(Duration::ZERO)).await.expect("it is free");
        let waits = wait_for(&others, &name, arena.options(LONG));
        let holder = the_holder(&locks, &name).await;
        until(&locks, &name, |seen| {
            seen.waiters == LockWaiters::Unknown || waiters(seen).len() == 1
        })
        .await;
        let freed = Instant::now();
        assert!(!locks.force_release(&name, "another").await.expect("an answer"));
        assert!(locks.force_release(&name, &holder.id).await.expect("an answer"));
        let next = waits.await.expect("no panic").expect("the lock");
        let took = freed.elapsed();
        assert!(took < SLACK, "the waiter was let in after {took:?}, as by the end of a lease");
        let was_freed =
            |seen: &LockSnapshot| seen.state.holders().iter().all(|now| now.id != holder.id);
        until(&locks, &name, was_freed).await;
        next.release().await.expect("a release");
        // It is another owner's or no one's by now: its release harms nothing.
        drop(guard);
        locks.flush().await;
    });
}

fn reading_keeps_nothing(arena: &Arena) {
    arena.run(async || {
        let (locks, others) = arena.two_locks().await;
        let name = fresh_name();
        let options = LockOptions::new(Duration::ZERO, distlock::Lease::Fixed(SHORT));
        let before = Instant::now();
        let guard = locks.lock(&name, &options).await.expect("it is free");
        let taken = Instant::now();
        let mut readings = 0;
        loop {
            // Each lease began before `taken` and is read after this moment.
            let most = SHORT.saturating_sub(taken.elapsed()) + CLOCK_ERROR;
            listed(&others, name.as_str()).await.expect("a list");
            let seen = others.inspect(&name).await.expect("an answer");
            let Some(holder) = seen.state.holders().first() else { break };
            let RemainingLease::Ends(left) = holder.lease else { panic!("{holder:?}") };
            assert!(left <= most, "{left:?} are left of at most {most:?}");
            readings += 1;
        }
        assert!(readings > 3, "it was seen {readings} times");
        assert!(before.elapsed() < SHORT + SLACK, "it was held for {:?}", taken.elapsed());
        drop(guard);
        locks.flush().await;
    });
}

fn a_time_out_names_the_holder(arena: &Arena) {
    arena.run(async || {
        let (locks, others) = arena.two_locks().await;
        let locks = locks.with_owner_tag(OwnerTag::of_this_process("the first"));
        let others = others.with_owner_tag(OwnerTag::of_this_process("the second"));
        let name = fresh_name();
        let guard = locks.lock(&name, &arena.options(Duration::ZERO)).await.expect("it is free");
        for (wait, is_named) in [(Duration::from_millis(400), false), (LONG / 4, true)] {
            let refused = others.lock(&name, &arena.options(wait)).await.expect_err("it is held");
            let sentence = refused.to_string();
            let LockError::TimedOut { holder, .. } = refused else { panic!("{refused:?}") };
            assert_eq!(holder.is_some(), is_named, "after {wait:?}: {sentence}");
            let Some(holder) = holder else { continue };
            // A sentence says how long ago it was asked for, by the clock of that moment.
            let named = holder.to_string();
            let named = named.split(", asked").next().unwrap_or_default();
            assert!(sentence.contains(named), "{sentence}: {named}");
            // Some kinds store no owner: then the holder is a connection, or a time.
            let Some(owner) = &holder.owner else { continue };
            assert_eq!(owner, guard.owner().as_str());
            let tag = holder.tag.clone().expect("a tag");
            assert_eq!((&tag.label[..], tag.process), ("the-first", std::process::id()));
        }
        guard.release().await.expect("a release");
    });
}

fn a_waiter_is_named(arena: &Arena) {
    arena.run(async || {
        let (locks, others) = arena.two_locks().await;
        let tag = OwnerTag::of_this_process("the waiter");
        let (name, others) = (fresh_name(), others.with_owner_tag(tag.clone()));
        let locks = locks.with_owner_tag(OwnerTag::of_this_process("the holder"));
        let guard = locks.lock(&name, &arena.options(Duration::ZERO)).await.expect("it is free");
        let waits = wait_for(&others, &name, arena.options(LONG));
        let seen = until(&locks, &name, |seen| !waiters(seen).is_empty()).await;
        let [waiter] = waiters(&seen) else { panic!("one waits: {seen:?}") };
        let shown = waiter.tag.clone().expect("a tag");
        assert!(shown.asked_at_ms > 0, "{shown:?}");
        assert_eq!(OwnerTag { asked_at_ms: 0, ..shown }, tag);
        let holder = &seen.state.holders()[0].id;
        assert!(locks.force_release(&name, holder).await.expect("an answer"));
        let next = waits.await.expect("no panic").expect("the lock");
        assert_eq!(next.release().await.expect("a release"), Release::Released);
        drop(guard);
        locks.flush().await;
    });
}
