//! Locks seen from outside, in Redis. What every kind shows is in the crate conformance.

mod support;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use distlock::{
    LockError, LockKind, LockName, LockSnapshot, LockState, LockWaiters, Locks, RemainingLease,
};
use redis::AsyncCommands;
use support::cluster::shared;
use support::scene::{Order, Scene};
use support::{LONG, Look, at_once, connect, eventually, fresh_name, locks_of, options, server};

const MANY: usize = 10_000;

async fn locks(kind: LockKind) -> Locks {
    locks_of(kind, connect(server().url()).await)
}

/// All locks of all pages, each of at most `limit`.
async fn all(locks: &Locks, prefix: &str, limit: usize) -> Vec<LockSnapshot> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = locks.list(prefix, cursor, limit).await.expect("a page");
        assert!(page.locks.len() <= limit, "{} locks on a page of {limit}", page.locks.len());
        found.extend(page.locks);
        cursor = page.next;
        if cursor.is_none() {
            return found;
        }
    }
}

async fn names(locks: &Locks, prefix: &str) -> Vec<String> {
    let mut names: Vec<_> =
        all(locks, prefix, 100).await.into_iter().map(|lock| lock.name).collect();
    names.sort();
    names
}

fn name(text: &str) -> LockName {
    LockName::new(text).expect("a good name")
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_locks_are_listed_in_bounded_pages_without_keys() {
    let (locks, look) = (locks(LockKind::LuaRelease).await, Look::at(server().url()).await);
    let prefix = format!("{}:", fresh_name());
    let mut connection = look.connection();
    for part in 0..10 {
        let mut pipeline = redis::pipe();
        for number in (0..MANY / 10).map(|number| part * MANY / 10 + number) {
            pipeline.cmd("SET").arg(format!("{prefix}{number}")).arg("owner").arg("PX");
            pipeline.arg(100_000).ignore();
            pipeline.cmd("SET").arg(format!("other:{prefix}{number}")).arg("x").ignore();
        }
        pipeline.exec_async(&mut connection).await.expect("keys");
    }
    let began = Instant::now();
    let found = all(&locks, &prefix, 1000).await;
    println!("{MANY} locks among {} keys in {:?}", 2 * MANY, began.elapsed());
    let found: HashSet<String> = found
        .into_iter()
        .inspect(|lock| assert!(matches!(lock.state, LockState::Held(_)), "{lock:?}"))
        .map(|lock| lock.name)
        .collect();
    assert_eq!(found.len(), MANY);
    assert!((0..MANY).all(|number| found.contains(&format!("{prefix}{number}"))));
    assert_eq!(all(&locks, &prefix, 7).await.len(), MANY);
    let mut info = redis::cmd("INFO");
    let used: String =
        info.arg("commandstats").query_async(&mut connection).await.expect("an answer");
    assert!(used.contains("cmdstat_scan:") && !used.contains("cmdstat_keys:"), "{used}");
}

#[tokio::test]
async fn a_page_of_no_lock_or_of_too_many_is_refused() {
    let locks = locks(LockKind::Redisson).await;
    for limit in [0, 1001] {
        let refused = locks.list("lock:", None, limit).await.expect_err("a bad limit");
        assert!(matches!(refused, LockError::BadRequest { field: "page", .. }), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_covers_every_master_of_a_cluster() {
    let nodes = shared();
    let prefix = fresh_name();
    for kind in [LockKind::Redisson, LockKind::Fair, LockKind::ReadWrite, LockKind::LuaRelease] {
        let locks = nodes.locks(kind).await;
        let mut guards = Vec::new();
        let mut wanted = Vec::new();
        for number in 0..30 {
            // Some with a tag of their own.
            let text = match number % 2 {
                0 => format!("{prefix}:{kind}:{number}"),
                _ => format!("{prefix}:{kind}:{{{number}}}"),
            };
            guards.push(locks.lock(&name(&text), &at_once()).await.expect("the lock"));
            wanted.push(text);
        }
        wanted.sort();
        assert_eq!(names(&locks, &format!("{prefix}:{kind}:")).await, wanted, "{kind}");
        for guard in guards {
            guard.release().await.expect("a release");
        }
        assert!(names(&locks, &format!("{prefix}:{kind}:")).await.is_empty(), "{kind}");
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_shown_as_damaged_beside_the_others() {
    let (locks, look) = (locks(LockKind::LuaRelease).await, Look::at(server().url()).await);
    let prefix = fresh_name();
    let (fine, odd) = (name(&format!("{prefix}:1")), name(&format!("{prefix}:2")));
    let _guard = locks.lock(&fine, &at_once()).await.expect("the lock");
    look.make_hash(&odd).await;
    let mut found = all(&locks, prefix.as_str(), 100).await;
    found.sort_by(|one, other| one.name.cmp(&other.name));
    let [first, second] = &found[..] else { panic!("{found:?}") };
    assert!(matches!(first.state, LockState::Held(_)), "{first:?}");
    assert!(matches!(second.state, LockState::Damaged(_)), "{second:?}");
    assert!(look.is_hash(&odd).await, "it is as it was");
}

#[tokio::test]
async fn a_hash_that_is_no_lock_is_shown_as_damaged() {
    let (locks, look) = (locks(LockKind::Redisson).await, Look::at(server().url()).await);
    for fields in [&[("permits", "3"), ("set", "x")][..], &[("owner", "many")]] {
        let name = fresh_name();
        let mut connection = look.connection();
        connection.hset_multiple::<_, _, _, ()>(name.as_str(), fields).await.expect("a hash");
        let seen = locks.inspect(&name).await.expect("an answer");
        assert!(matches!(seen.state, LockState::Damaged(_)), "{seen:?}");
    }
}

#[tokio::test]
async fn a_lock_of_redisson_is_shown_with_its_thread_its_count_and_its_lease() {
    let (locks, look) = (locks(LockKind::Redisson).await, Look::at(server().url()).await);
    let (name, owner) = (fresh_name(), "0b0f6d8a-51c6-4d8e-9d1d-7c3f9f4a1c55:87");
    let mut connection = look.connection();
    connection.hset::<_, _, _, ()>(name.as_str(), owner, 3).await.expect("a hash");
    let seen = locks.inspect(&name).await.expect("an answer");
    let holder = &seen.state.holders()[0];
    assert_eq!((holder.owner.as_deref(), holder.holds), (Some(owner), Some(3)));
    assert_eq!(holder.lease, RemainingLease::NoExpiry, "it has none");
    connection.pexpire::<_, ()>(name.as_str(), 30_000).await.expect("a lease");
    let seen = locks.inspect(&name).await.expect("an answer");
    let RemainingLease::Ends(left) = seen.state.holders()[0].lease else { panic!("{seen:?}") };
    assert!(left > Duration::from_secs(20) && left <= Duration::from_secs(30), "{left:?}");
}

#[tokio::test]
async fn a_prefix_with_the_signs_of_patterns_means_itself() {
    let locks = locks(LockKind::LuaRelease).await;
    let prefix = fresh_name();
    let odd = ["*", "?", "[a]", "\\", "^", "-"];
    let mut guards = Vec::new();
    for sign in odd {
        for end in ["x", "y"] {
            let name = name(&format!("{prefix}{sign}{end}"));
            guards.push(locks.lock(&name, &at_once()).await.expect("the lock"));
        }
    }
    for sign in odd {
        let wanted = ["x", "y"].map(|end| format!("{prefix}{sign}{end}"));
        assert_eq!(names(&locks, &format!("{prefix}{sign}")).await, wanted, "{sign}");
    }
    let fair = locks_of(LockKind::Fair, connect(server().url()).await);
    let _guard = fair.lock(&name(&format!("{prefix}[a]z")), &at_once()).await.expect("the lock");
    assert_eq!(names(&fair, &format!("{prefix}[a]")).await, [format!("{prefix}[a]z")]);
}

#[tokio::test]
async fn a_holder_that_has_gone_is_not_freed_and_neither_is_its_successor() {
    for kind in [LockKind::LuaRelease, LockKind::Redisson, LockKind::Fair, LockKind::ReadWrite] {
        let (locks, name) = (locks(kind).await, fresh_name());
        let first = locks.lock(&name, &at_once()).await.expect("the lock");
        let old = locks.inspect(&name).await.expect("an answer").state.holders()[0].id.clone();
        first.release().await.expect("a release");
        let second = locks.lock(&name, &at_once()).await.expect("the lock");
        assert!(!locks.force_release(&name, &old).await.expect("an answer"), "{kind}");
        let seen = locks.inspect(&name).await.expect("an answer");
        assert_eq!(seen.state.holders()[0].owner.as_deref(), Some(second.owner().as_str()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn freeing_by_force_sends_the_message_of_a_release() {
    let scene = Scene::new().await;
    let (locks, messages) =
        (locks(LockKind::Redisson).await, scene.messages("redisson_lock__channel").await);
    let guard = locks.lock(&scene.name, &at_once()).await.expect("the lock");
    assert!(messages.seen().is_empty());
    assert!(locks.force_release(&scene.name, guard.owner().as_str()).await.expect("an answer"));
    eventually("a message", async || !messages.seen().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queue_of_a_fair_lock_is_shown_in_its_order() {
    let (locks, scene, order) = (locks(LockKind::Fair).await, Scene::new().await, Order::default());
    let guard = locks.lock(&scene.name, &at_once()).await.expect("the lock");
    let mut waiters = Vec::new();
    for number in 1..=3 {
        waiters.push(scene.waiter(&locks, number, &order));
        scene.wait_for_members("distlock_fair_waiters", number).await;
    }
    let mut connection = scene.connection.clone();
    let queue = scene.key("distlock_fair_queue");
    let queue: Vec<String> = connection.lrange(queue, 0, -1).await.expect("an answer");
    let seen = locks.inspect(&scene.name).await.expect("an answer");
    assert_eq!(seen.waiters, LockWaiters::Ordered(queue));
    assert!(locks.force_release(&scene.name, guard.owner().as_str()).await.expect("an answer"));
    for waiter in waiters {
        waiter.await.expect("it had the lock");
    }
    assert_eq!(*order.lock().expect("no panic"), [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_are_shown_as_owners_that_share() {
    let server = connect(server().url()).await;
    let both = distlock::ReadWrite::new(&server);
    let (readers, writers) = (Locks::new(both.reader()), Locks::new(both.writer()));
    let name = fresh_name();
    let one = readers.lock(&name, &at_once()).await.expect("the lock");
    let again = readers.lock_as(one.owner().clone(), &name, &at_once()).await.expect("the lock");
    let other = readers.lock(&name, &options(Duration::ZERO, LONG / 2)).await.expect("the lock");
    let waits = {
        let (writers, name) = (writers.clone(), name.clone());
        tokio::spawn(async move { writers.lock(&name, &support::patient()).await })
    };
    eventually("a writer waits", async || {
        let seen = writers.inspect(&name).await.expect("an answer");
        seen.waiters != LockWaiters::Unordered(Vec::new())
    })
    .await;
    let seen = writers.inspect(&name).await.expect("an answer");
    let mut holds: Vec<_> =
        seen.state.holders().iter().map(|holder| (holder.holds, holder.shares)).collect();
    holds.sort_unstable();
    assert_eq!(holds, [(Some(1), true), (Some(2), true)], "{seen:?}");
    assert_eq!(names(&writers, name.as_str()).await, [name.as_str()]);
    for guard in [&one, &other] {
        let id = guard.owner().as_str();
        assert!(writers.force_release(&name, id).await.expect("an answer"));
    }
    let guard = waits.await.expect("no panic").expect("the lock");
    assert!(!guard.is_lost());
    drop((one, again, other));
}
