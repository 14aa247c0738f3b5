//! Locks seen from outside, in Redis. What every kind shows is in the crate conformance.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::support::redisson::OwnServer;
use crate::support::scene::{Order, Scene};
use crate::support::{
    LONG, Look, at_once, connect, eventually, fresh_name, granted, locks_of, options, server,
};
use distlock::{
    Guard, LockError, LockKind, LockName, LockSnapshot, LockState, LockWaiter, LockWaiters, Locks,
    Release, RemainingLease,
};
use redis::AsyncCommands;
use testbed::{Bed, RedisOptions};

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
    // A server of its own: other tests send KEYS.
    let own = OwnServer::start();
    let mut connection = Look::at(own.redis.url()).await.connection();
    let locks = locks_of(LockKind::LuaRelease, connect(own.redis.url()).await);
    let prefix = format!("{}:", fresh_name());
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

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_the_right_to_encodings_is_shown_the_same_locks() {
    let own = OwnServer::start();
    let mut connection = Look::at(own.redis.admin_url()).await.connection();
    let prefix = fresh_name();
    let key = |end: &str| format!("{prefix}:{end}");
    for (name, field, bytes) in [("short", "owner", 1), ("long", "owner", 100), ("odd", "o", 2000)]
    {
        let content = "1".repeat(bytes);
        connection.set::<_, _, ()>(key(&format!("{name}-string")), &content).await.expect("a key");
        let name = key(&format!("{name}-hash"));
        connection.hset::<_, _, _, ()>(name, field, &content).await.expect("a key");
    }
    connection.hset::<_, _, _, ()>(key("lock"), "o".repeat(100), 3).await.expect("a key");
    connection.rpush::<_, _, ()>(key("list"), "x").await.expect("a key");
    connection.zadd::<_, _, _, ()>(key("set"), "x", 1).await.expect("a key");
    let mut rules = redis::cmd("ACL");
    rules.arg(&["SETUSER", "plain", "on", "nopass", "~*", "&*", "+@all", "-object", "-hgetall"]);
    rules.exec_async(&mut connection).await.expect("a user");
    let plain = own.redis.admin_url().replace("://:", "://plain:");
    for kind in [LockKind::LuaRelease, LockKind::GetsetTimestamp, LockKind::Redisson] {
        let mut seen = Vec::new();
        for url in [own.redis.admin_url(), &plain] {
            let mut found = all(&locks_of(kind, connect(url).await), prefix.as_str(), 100).await;
            found.sort_by(|one, other| one.name.cmp(&other.name));
            seen.push(found);
        }
        assert_eq!(seen[0], seen[1], "{kind}");
        assert!(seen[0].len() > 5, "{kind}: {seen:?}");
    }
}

/// What the server has sent so far, in bytes.
async fn sent(look: &Look) -> u64 {
    let mut info = redis::cmd("INFO");
    let stats: String =
        info.arg("stats").query_async(&mut look.connection()).await.expect("an answer");
    let line = stats.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).expect("a number")
}

#[tokio::test]
async fn large_keys_of_other_programs_are_shown_with_their_size_and_are_not_read() {
    const LARGE: usize = 4 << 20;
    let server = Bed::start().expect("a private bed");
    let server = (server.redis(RedisOptions::default()).expect("Redis is installed"), server);
    let look = Look::at(server.0.url()).await;
    let (prefix, content) = (fresh_name(), "x".repeat(LARGE));
    let mut connection = look.connection();
    connection.set::<_, _, ()>(format!("{prefix}:1"), &content).await.expect("a string");
    let (many, one) = (format!("{prefix}:2"), format!("{prefix}:3"));
    let fields: Vec<_> = (0..20_000).map(|number| (number, "x".repeat(99))).collect();
    connection.hset_multiple::<_, _, _, ()>(&many, &fields).await.expect("a hash");
    connection.hset::<_, _, _, ()>(&one, "field", &content).await.expect("a hash");
    connection.rpush::<_, _, ()>(format!("{prefix}:4"), "x").await.expect("a list");
    let before = sent(&look).await;
    for kind in [LockKind::LuaRelease, LockKind::GetsetTimestamp, LockKind::Redisson] {
        let locks = locks_of(kind, connect(server.0.url()).await);
        let mut found = all(&locks, prefix.as_str(), 100).await;
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let why = |lock: &LockSnapshot| format!("{:.120}", format!("{:?}", lock.state));
        let why: Vec<_> = found.iter().map(why).collect();
        let sizes = ["string of 4194304", "hash with 20000", "field of 4194309", "a list"];
        for (why, size) in why.iter().zip(sizes) {
            assert!(why.starts_with("Damaged") && why.contains(size), "{kind}: {why}");
        }
        assert_eq!(found.len(), sizes.len(), "{kind}: {why:?}");
    }
    let sent = sent(&look).await - before;
    assert!(sent < 1 << 20, "{sent} bytes were read");
}

#[tokio::test]
async fn names_and_owners_that_are_not_text_are_shown_as_damaged_and_hide_no_other() {
    let (look, prefix) = (Look::at(server().url()).await, fresh_name());
    let mut connection = look.connection();
    let odd = |end: u8| [prefix.as_str().as_bytes(), &[end]].concat();
    for end in [0xfe, 0xff] {
        connection.set::<_, _, ()>(odd(end), "owner").await.expect("a key");
    }
    let (string, hash) = (format!("{prefix}:1"), format!("{prefix}:2"));
    connection.set::<_, _, ()>(&string, b"\xff").await.expect("a key");
    connection.hset::<_, _, _, ()>(&hash, b"\xff", 1).await.expect("a hash");
    for (kind, own) in [(LockKind::LuaRelease, &string), (LockKind::Redisson, &hash)] {
        let locks = locks(kind).await;
        let mut found = names(&locks, prefix.as_str()).await;
        found.dedup();
        assert_eq!(found.len(), 4, "{kind}: {found:?}");
        assert!(found.contains(&format!("{prefix}\\xfe")), "{found:?}");
        let seen = locks.inspect(&name(own)).await.expect("an answer");
        assert!(matches!(seen.state, LockState::Damaged(_)), "{seen:?}");
    }
    for (kind, key) in
        [(LockKind::Fair, "distlock_fair"), (LockKind::ReadWrite, "distlock_rw_write")]
    {
        let key = format!("{key}:{{{prefix}}}");
        connection.zadd::<_, _, _, ()>(&key, b"id:\xff", 1).await.expect("a set");
        let locks = locks(kind).await;
        let seen = locks.inspect(&prefix).await.expect("an answer");
        assert!(matches!(seen.state, LockState::Damaged(_)), "{seen:?}");
        let freed = locks.force_release(&prefix, "owner").await;
        assert!(matches!(freed, Ok(false)), "{freed:?}");
    }
}

#[tokio::test]
async fn a_queue_of_more_waiters_than_are_shown_says_so() {
    let (locks, scene) = (locks(LockKind::Fair).await, Scene::new().await);
    let _guard = locks.lock(&scene.name, &at_once()).await.expect("the lock");
    let mut connection = scene.connection.clone();
    for (many, is_more) in [(1000, false), (1001, true)] {
        let (queue, waiters) =
            (scene.key("distlock_fair_queue"), scene.key("distlock_fair_waiters"));
        connection.del::<_, ()>(&[&queue, &waiters]).await.expect("no queue");
        let ids: Vec<_> = (0..many).map(|number| format!("waiter-{number}")).collect();
        connection.rpush::<_, _, ()>(&queue, &ids).await.expect("a queue");
        // Those in front were seen first.
        let ends: Vec<_> = ids.iter().enumerate().collect();
        connection.zadd_multiple::<_, _, _, ()>(&waiters, &ends).await.expect("their ends");
        connection.pexpire::<_, ()>(&waiters, 60_000).await.expect("an end");
        let seen = locks.inspect(&scene.name).await.expect("an answer");
        let LockWaiters::Ordered(shown) = &seen.waiters else { panic!("{seen:?}") };
        assert!(
            shown.iter().map(|waiter| &waiter.id).eq(&ids[..1000]),
            "{} are shown",
            shown.len()
        );
        assert_eq!(seen.has_more_waiters, is_more, "{many}");
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
async fn a_hold_that_has_ended_is_not_freed_and_neither_is_its_successor() {
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

#[tokio::test]
async fn no_owner_is_called_by_the_sign_that_stands_for_any() {
    for kind in [LockKind::Redisson, LockKind::Reentrant] {
        let (locks, name) = (locks(kind).await, fresh_name());
        let guard = locks.lock(&name, &at_once()).await.expect("the lock");
        assert!(!locks.force_release(&name, "*").await.expect("an answer"), "{kind}");
        assert_eq!(guard.release().await.expect("a release"), Release::Released, "{kind}");
    }
}

#[tokio::test]
async fn a_hold_that_has_expired_beside_a_living_one_is_not_freed() {
    let both = distlock::ReadWrite::new(&connect(server().url()).await);
    let (readers, name) = (Locks::new(both.reader()), fresh_name());
    let short = options(Duration::ZERO, Duration::from_millis(300));
    let ended = granted(&readers, &name, &short).await;
    let living = readers.lock(&name, &at_once()).await.expect("the lock");
    eventually("one has ended on the server", async || {
        let state = readers.inspect(&name).await.expect("an answer").state;
        state.holders().len() == 1
    })
    .await;
    let force = async |guard: &Guard| {
        readers.force_release(&name, guard.owner().as_str()).await.expect("an answer")
    };
    assert!(!force(&ended).await);
    assert!(force(&living).await);
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
    assert_eq!(
        seen.waiters,
        LockWaiters::Ordered(queue.into_iter().map(LockWaiter::from).collect())
    );
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
        tokio::spawn(async move { writers.lock(&name, &crate::support::patient()).await })
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
