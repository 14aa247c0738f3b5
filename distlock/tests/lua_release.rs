//! `lua-release` on a real Redis. Several `Locks`, each with a connection of its own, are several
//! processes as far as the server can see.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Backends, LockError, LockKind, LockName, Locks, Release, locker};
use support::dropped::up_to;
use support::{LONG, Look, at_once, eventually, fresh_name, locks, options, patient, server};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Clearly less than any wait in these tests, with room for a busy machine.
const SOON: Duration = Duration::from_secs(5);

async fn look() -> Look {
    Look::at(server().url()).await
}

/// A counter that loses counts, and a section that notices company, unless they are guarded.
#[derive(Default)]
struct Section {
    counter: AtomicU64,
    inside: AtomicU32,
    crowded: AtomicU32,
}

impl Section {
    async fn visit(&self) {
        let company = self.inside.fetch_add(1, Ordering::SeqCst);
        self.crowded.fetch_add(u32::from(company > 0), Ordering::SeqCst);
        let seen = self.counter.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.counter.store(seen + 1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Eight tasks of each process visit the section six times each.
async fn visit_all(processes: &[Locks]) -> (u64, u32) {
    let (section, name) = (Arc::<Section>::default(), fresh_name());
    let mut tasks = JoinSet::new();
    for locks in processes.iter().flat_map(|locks| std::iter::repeat_n(locks, 8)) {
        let (locks, section, name) = (locks.clone(), Arc::clone(&section), name.clone());
        tasks.spawn(async move {
            for _ in 0..6 {
                let guard = locks.lock(&name, &patient()).await.expect("the lock");
                section.visit().await;
                assert!(!guard.is_lost());
                guard.release().await.expect("a release");
            }
        });
    }
    tasks.join_all().await;
    (section.counter.load(Ordering::SeqCst), section.crowded.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_three_processes_are_in_the_section_one_at_a_time() {
    let visits = 3 * 8 * 6;
    let processes = [locks().await, locks().await, locks().await];
    assert_eq!(visit_all(&processes).await, (visits, 0));
    // The same without a lock, to see that the section would tell.
    let none = Locks::new(locker(LockKind::None, &Backends::default()).expect("a locker"));
    let (counted, crowded) = visit_all(&[none.clone(), none.clone(), none]).await;
    assert!(counted < visits && crowded > 0, "{counted} counted, {crowded} met others");
}

#[tokio::test]
async fn while_it_is_held_the_server_knows_its_owner_and_its_lease() {
    let (locks, look, name) = (locks().await, look().await, fresh_name());
    let mut owners = BTreeSet::new();
    for seconds in [5, 20, 60] {
        let lease = Duration::from_secs(seconds);
        let guard = locks.lock(&name, &options(Duration::ZERO, lease)).await.expect("the lock");
        let left = look.lease(&name).await.expect("a lease");
        assert!(left <= lease && left + Duration::from_secs(2) > lease, "{left:?} of {lease:?}");
        let owner = look.owner(&name).await.expect("an owner");
        assert_eq!(owner.parse::<Uuid>().expect("a UUID").get_version_num(), 4);
        owners.insert(owner);
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
        assert_eq!(look.lease(&name).await, None, "nothing is left");
    }
    assert_eq!(owners.len(), 3, "each acquisition has an owner of its own");
}

#[tokio::test]
async fn a_release_tells_freed_from_held_by_another_from_gone() {
    let (locks, look, name) = (locks().await, look().await, fresh_name());
    let guard = locks.lock(&name, &at_once()).await.expect("the lock");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
    assert_eq!(look.owner(&name).await, None);

    let guard = locks.lock(&name, &at_once()).await.expect("the lock");
    look.set(&name, "another").await;
    assert_eq!(guard.release().await.expect("a release"), Release::HeldByOther);
    assert_eq!(look.owner(&name).await.as_deref(), Some("another"), "it was not touched");
    look.delete(&name).await;

    let guard = locks.lock(&name, &at_once()).await.expect("the lock");
    look.delete(&name).await;
    assert_eq!(guard.release().await.expect("a release"), Release::Gone);
}

#[tokio::test]
async fn a_late_release_never_frees_the_successor() {
    let (first, second, look, name) = (locks().await, locks().await, look().await, fresh_name());
    let short = options(Duration::ZERO, Duration::from_millis(50));
    let late = first.lock(&name, &short).await.expect("the lock");
    let successor = second.lock(&name, &patient()).await.expect("the lock after the lease");
    assert!(late.is_lost());
    let owner = look.owner(&name).await;
    assert_eq!(late.release().await.expect("a release"), Release::HeldByOther);
    assert_eq!(look.owner(&name).await, owner);
    assert_eq!(successor.release().await.expect("a release"), Release::Released);
}

#[tokio::test]
async fn work_longer_than_the_lease_has_two_holders() {
    // The known flaw of this kind: nothing renews the lease. The holder can only find out.
    let (first, second, name) = (locks().await, locks().await, fresh_name());
    let short = options(Duration::ZERO, Duration::from_millis(100));
    let working = first.lock(&name, &short).await.expect("the lock");
    let section = Section::default();
    let company = tokio::join!(
        async {
            section.inside.fetch_add(1, Ordering::SeqCst);
            tokio::time::timeout(LONG, working.lost_signal().lost())
                .await
                .expect("the loss is told");
            eventually("somebody else is inside as well", async || {
                section.inside.load(Ordering::SeqCst) == 2
            })
            .await;
        },
        async {
            let guard = second.lock(&name, &patient()).await.expect("the lock");
            section.inside.fetch_add(1, Ordering::SeqCst);
            assert!(!guard.is_lost());
            guard
        },
    );
    assert!(working.is_lost());
    assert_eq!(company.1.release().await.expect("a release"), Release::Released);
    let gone = working.release().await.expect("a release");
    assert_ne!(gone, Release::Released);
}

#[tokio::test]
async fn a_holder_that_goes_without_a_release_keeps_others_out_until_its_lease_ends() {
    let (first, second, name) = (locks().await, locks().await, fresh_name());
    let lease = Duration::from_millis(400);
    let asked = Instant::now();
    let guard = first.lock(&name, &options(Duration::ZERO, lease)).await.expect("the lock");
    let granted = Instant::now();
    guard.leave_to_lease();
    let heir = second.lock(&name, &patient()).await.expect("the lock");
    assert!(asked.elapsed() >= lease, "it was let in after {:?}", asked.elapsed());
    assert!(granted.elapsed() < lease + SOON, "{:?}", granted.elapsed());
    heir.release().await.expect("a release");
}

#[tokio::test]
async fn a_holder_that_hangs_keeps_its_own_process_out_only_until_its_lease_ends() {
    let (locks, name) = (locks().await, fresh_name());
    let lease = Duration::from_millis(400);
    let asked = Instant::now();
    let hung = locks.lock(&name, &options(Duration::ZERO, lease)).await.expect("the lock");
    let heir = locks.lock(&name, &patient()).await.expect("the lock");
    assert!(asked.elapsed() >= lease, "two of one process hold it");
    assert!(asked.elapsed() < lease + SOON, "{:?}", asked.elapsed());
    assert_eq!(hung.release().await.expect("an answer"), Release::HeldByOther);
    heir.release().await.expect("a release");
}

#[tokio::test]
async fn validity_ends_before_the_server_lets_somebody_else_in() {
    let (locks, look) = (locks().await, look().await);
    let mut ended_first = 0;
    for _ in 0..5 {
        let name = fresh_name();
        let lease = options(Duration::ZERO, Duration::from_millis(300));
        let guard = locks.lock(&name, &lease).await.expect("the lock");
        loop {
            let left = look.lease(&name).await;
            // If it is still valid now, it must have existed when the server was asked.
            if guard.is_lost() {
                ended_first += u32::from(left.is_some());
                break;
            }
            assert!(left.is_some(), "believed in, but the server had already forgotten it");
        }
        tokio::time::timeout(SOON, guard.lost_signal().lost()).await.expect("the loss is told");
    }
    assert!(ended_first > 0, "belief never ended before the lease");
}

#[tokio::test]
async fn without_a_wait_a_busy_lock_is_refused_at_once() {
    let (holder, same, other) = (locks().await, locks().await, locks().await);
    let name = fresh_name();
    let guard = holder.lock(&name, &at_once()).await.expect("the lock");
    for locks in [&holder, &same, &other] {
        let started = Instant::now();
        let refused = locks.lock(&name, &at_once()).await;
        assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    }
    guard.release().await.expect("a release");
}

#[tokio::test]
async fn a_wait_ends_when_it_is_over_and_not_before() {
    let (holder, other, look) = (locks().await, locks().await, look().await);
    let name = fresh_name();
    let guard = holder.lock(&name, &at_once()).await.expect("the lock");
    let owner = look.owner(&name).await;
    let wait = Duration::from_millis(250);
    for locks in [&holder, &other] {
        let started = Instant::now();
        match locks.lock(&name, &options(wait, LONG)).await {
            Err(LockError::TimedOut { waited, .. }) => assert!(waited >= wait, "{waited:?}"),
            other => panic!("{:?}", other.err()),
        }
        assert!(started.elapsed() >= wait, "{:?}", started.elapsed());
        assert!(started.elapsed() < wait + SOON, "{:?}", started.elapsed());
    }
    assert_eq!(look.owner(&name).await, owner, "waiting took nothing away");
    guard.release().await.expect("a release");
}

/// Nothing of the first is left, so that the second gets the lock at once.
async fn assert_free(first: &Locks, second: &Locks, name: &LockName, what: &str) {
    first.flush().await;
    let guard = second.lock(name, &at_once()).await;
    let guard = guard.unwrap_or_else(|error| panic!("{what}: something is left: {error}"));
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_dropped_at_any_point_leaves_nothing_behind() {
    let (first, second, name) = (locks().await, locks().await, fresh_name());
    let mut dropped = 0;
    for round in 0..30 {
        let polls = round % 3 + 1;
        let done = up_to(polls, first.lock(&name, &patient())).await;
        dropped += u32::from(done.is_none());
        drop(done);
        assert_free(&first, &second, &name, &format!("free lock, {polls} polls")).await;
    }
    assert!(dropped >= 5, "only {dropped} were dropped half way");
    // A waiter is pending at each look and at each pause between two.
    for polls in 1..40 {
        let holder = second.lock(&name, &at_once()).await.expect("the lock");
        let waiting = up_to(polls, first.lock(&name, &patient())).await;
        assert!(waiting.is_none(), "it cannot have got the lock");
        let what = format!("busy lock, {polls} polls");
        assert_eq!(holder.release().await.expect("a release"), Release::Released, "{what}");
        assert_free(&first, &second, &name, &what).await;
    }
}

#[tokio::test]
async fn a_dropped_guard_is_released_and_flush_waits_for_that() {
    let (locks, look) = (locks().await, look().await);
    for _ in 0..20 {
        let names: Vec<_> = std::iter::repeat_with(fresh_name).take(20).collect();
        for name in &names {
            drop(locks.lock(name, &at_once()).await.expect("the lock"));
        }
        locks.flush().await;
        // The last one dropped has had the least time.
        for name in names.iter().rev() {
            assert_eq!(look.owner(name).await, None, "flush did not wait");
        }
    }
}

#[tokio::test]
async fn scripts_that_the_server_has_forgotten_are_sent_again() {
    let (locks, look, name) = (locks().await, look().await, fresh_name());
    for _ in 0..3 {
        let guard = locks.lock(&name, &at_once()).await.expect("the lock");
        look.flush_scripts().await;
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_stays_as_it_is() {
    let (locks, look, name) = (locks().await, look().await, fresh_name());
    let guard = locks.lock(&name, &at_once()).await.expect("the lock");
    look.make_hash(&name).await;
    let error = guard.release().await.expect_err("it is no lock of ours");
    assert!(matches!(error, LockError::HeldByOtherKind), "{error}");
    assert!(look.is_hash(&name).await);
    let refused = locks.lock(&name, &at_once()).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "somebody has the name");
    assert!(look.is_hash(&name).await);
}
