//! `multi`: all of several locks, on three real servers.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::support::{
    LONG, Look, at_once, connect, connect_hasty, eventually, fresh_name, granted, locks_of, options,
};
use distlock::{
    Backends, HoldKind, Lease, LockError, LockKind, LockName, LockOptions, Locker, Locks,
    LossCause, Multi, Redisson, Release, RenewalKind, Support, locker,
};
use redis::AsyncCommands;
use testbed::{Bed, Redis, RedisOptions};
use tokio::time::{sleep, timeout};

/// A lease whose thirds are longer than the time-out of an answer.
const LEASE: Duration = Duration::from_secs(5);

/// A lock by `lua-release` on that server.
async fn member(redis: &Redis) -> Arc<dyn Locker> {
    let backends = Backends { redis: Some(connect(redis.url()).await), ..Backends::default() };
    locker(LockKind::LuaRelease, &backends).expect("a locker")
}

async fn members(servers: &[Redis]) -> Vec<Arc<dyn Locker>> {
    let mut members = Vec::new();
    for server in servers {
        members.push(member(server).await);
    }
    members
}

fn all_of(members: Vec<Arc<dyn Locker>>) -> Multi {
    Multi::same_name(members).expect("there are members")
}

fn all_but_one_of(members: Vec<Arc<dyn Locker>>) -> Multi {
    all_of(members).tolerating(1).expect("one is fewer than half")
}

fn three() -> (Bed, Vec<Redis>) {
    let bed = Bed::start().expect("a private bed");
    let servers = bed.redis_many(3, RedisOptions::default()).expect("Redis is installed");
    (bed, servers)
}

async fn owners(servers: &[Redis], name: &LockName) -> Vec<Option<String>> {
    let mut owners = Vec::new();
    for server in servers {
        owners.push(Look::at(server.url()).await.owner(name).await);
    }
    owners
}

#[tokio::test]
async fn a_multi_lock_is_held_on_every_server_or_on_none() {
    let (_bed, servers) = three();
    let locks = Locks::new(Arc::new(all_of(members(&servers).await)));
    let name = fresh_name();
    let guard = locks.lock(&name, &at_once()).await.expect("the lock");
    let held = owners(&servers, &name).await;
    assert!(held.iter().all(|owner| owner.as_deref() == Some(guard.owner().as_str())), "{held:?}");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
    assert_eq!(owners(&servers, &name).await, [None, None, None]);

    let last = Look::at(servers[2].url()).await;
    last.set(&name, "somebody").await;
    let refused = locks.lock(&name, &options(Duration::from_millis(50), LONG)).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })));
    let left = owners(&servers, &name).await;
    assert_eq!(left, [None, None, Some("somebody".to_owned())]);
}

#[tokio::test]
async fn multi_locks_over_the_same_names_in_another_order_do_not_deadlock() {
    let (_bed, servers) = three();
    let (one, other) = (fresh_name(), fresh_name());
    let server = member(&servers[0]).await;
    let locks_of = |first: &LockName, second: &LockName| {
        let members = vec![(server.clone(), first.clone()), (server.clone(), second.clone())];
        Locks::new(Arc::new(Multi::of(members).expect("two members")))
    };
    let mut tasks = Vec::new();
    for locks in [locks_of(&one, &other), locks_of(&other, &one)] {
        let name = fresh_name();
        tasks.push(tokio::spawn(async move {
            for _ in 0..100 {
                let options = options(Duration::from_secs(20), LONG);
                let guard = locks.lock(&name, &options).await.expect("the locks");
                guard.release().await.expect("a release");
            }
        }));
    }
    for task in tasks {
        timeout(Duration::from_secs(30), task).await.expect("no circle").expect("no panic");
    }
}

#[tokio::test]
async fn a_member_that_fails_at_release_does_not_keep_the_others() {
    let (_bed, servers) = three();
    let locks = Locks::new(Arc::new(all_of(members(&servers).await)));
    let name = fresh_name();
    let guard = locks.lock(&name, &at_once()).await.expect("the lock");
    servers[2].kill().expect("a kill");
    assert!(matches!(guard.release().await, Err(LockError::Backend(_))));
    assert_eq!(owners(&servers[..2], &name).await, [None, None]);
}

/// A member whose renewal has no answer keeps its validity.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_ends_with_the_validity_in_a_member_that_stands_still_unless_that_is_tolerated() {
    let (_bed, servers) = tokio::task::block_in_place(three);
    let mut members: Vec<Arc<dyn Locker>> = Vec::new();
    for server in &servers {
        members.push(Arc::new(Redisson::on(&connect_hasty(server.url()).await)));
    }
    let strict = Locks::new(Arc::new(all_of(members.clone())));
    let lenient = Locks::new(Arc::new(all_but_one_of(members)));
    let options = LockOptions::new(Duration::ZERO, Lease::Renewed(LEASE));
    let held = granted(&strict, &fresh_name(), &options).await;
    let kept = granted(&lenient, &fresh_name(), &options).await;
    servers[1].freeze().expect("it freezes");
    let told = timeout(LEASE * 2, held.lost()).await.expect("the others alone do not keep it");
    assert_eq!(told, LossCause::Expired);
    assert!(timeout(LEASE, kept.lost()).await.is_err(), "the others keep it");
    servers[1].thaw().expect("it goes on");
}

#[tokio::test]
async fn one_member_that_is_away_keeps_all_contenders_out_unless_it_is_tolerated() {
    let (_bed, servers) = three();
    let members = members(&servers).await;
    let strict = Locks::new(Arc::new(all_of(members.clone())));
    let lenient = Locks::new(Arc::new(all_but_one_of(members)));
    let name = fresh_name();
    servers[1].kill().expect("a kill");
    assert!(matches!(strict.lock(&name, &at_once()).await, Err(LockError::Backend(_))));
    strict.flush().await;
    let alive = [0, 2];
    for number in alive {
        let look = Look::at(servers[number].url()).await;
        assert_eq!(look.owner(&name).await, None, "what was taken is given back");
    }
    let guard = lenient.lock(&name, &at_once()).await.expect("two of three are enough");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
    servers[2].kill().expect("a kill");
    assert!(matches!(lenient.lock(&name, &at_once()).await, Err(LockError::Backend(_))));
}

#[tokio::test]
async fn a_held_lock_is_busy_though_a_tolerated_member_is_away() {
    for dead in 0..3 {
        let (_bed, servers) = three();
        let lenient = Locks::new(Arc::new(all_but_one_of(members(&servers).await)));
        let (name, held) = (fresh_name(), (dead + 1) % 3);
        servers[dead].kill().expect("a kill");
        let look = Look::at(servers[held].url()).await;
        look.set(&name, "somebody").await;
        let busy = lenient.try_lock(&name, at_once().lease).await.expect("it is only busy");
        assert!(busy.is_none(), "one is away and one is held");
        let left = Look::at(servers[(dead + 2) % 3].url()).await;
        assert_eq!(left.owner(&name).await, None, "what was taken is given back");

        // A newcomer waits for it like any other.
        let patient = options(Duration::from_secs(20), LONG);
        let freed = async {
            sleep(Duration::from_millis(100)).await;
            look.delete(&name).await;
        };
        let (guard, ()) = tokio::join!(lenient.lock(&name, &patient), freed);
        let guard = guard.expect("it is free");
        assert_eq!(look.owner(&name).await.as_deref(), Some(guard.owner().as_str()));
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
        assert_eq!(look.owner(&name).await, None);
    }
}

#[tokio::test]
async fn a_lock_of_no_members_or_one_that_two_could_hold_is_refused() {
    let (_bed, servers) = three();
    let members = members(&servers).await;
    let refused = |outcome: Result<Multi, LockError>| match outcome.map(drop) {
        Err(LockError::BadRequest { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Multi::same_name(Vec::new())), "members");
    assert_eq!(refused(Multi::of(Vec::new())), "members");
    for (count, most) in [(1, 0), (2, 0), (3, 1)] {
        let some = || all_of(members[..count].to_vec());
        for tolerated in 0..=most {
            some().tolerating(tolerated).expect("fewer than half");
        }
        for tolerated in [most + 1, count, count + 1, usize::MAX] {
            assert_eq!(refused(some().tolerating(tolerated)), "tolerated members", "of {count}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_member_that_is_done_without_is_queued_for_no_more() {
    let (_bed, servers) = tokio::task::block_in_place(three);
    let (mut members, mut singles) = (Vec::new(), Vec::new());
    for server in &servers {
        let of_its_own = connect(server.url()).await;
        let backends = Backends { redis: Some(of_its_own), ..Backends::default() };
        members.push(locker(LockKind::Fair, &backends).expect("a locker"));
        singles.push(locks_of(LockKind::Fair, connect(server.url()).await));
    }
    let (whole, name) = (Locks::new(Arc::new(all_but_one_of(members))), fresh_name());
    let mut held = Vec::new();
    for single in &singles[..2] {
        held.push(single.lock(&name, &at_once()).await.expect("it is free"));
    }
    let waiter = tokio::spawn({
        let name = name.clone();
        async move { whole.lock(&name, &options(Duration::from_secs(20), LONG)).await }
    });
    let mut queue = connect(servers[1].url()).await.connection();
    eventually("it queues for the second member", async || {
        let keys: Vec<String> = queue.keys("distlock_fair_queue*").await.expect("an answer");
        !keys.is_empty()
    })
    .await;
    let second = held.pop().expect("two are held");
    held.pop().expect("one is held").release().await.expect("a release");
    let guard = waiter.await.expect("no panic").expect("two of three are free");
    // A new caller finds an empty queue.
    assert_eq!(second.release().await.expect("a release"), Release::Released);
    let newcomer = singles[1].try_lock(&name, at_once().lease).await.expect("an answer");
    newcomer.expect("nobody holds it").release().await.expect("a release");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_for_one_member_is_queued_at_no_other() {
    let (_bed, servers) = tokio::task::block_in_place(three);
    let (first, second) = (connect(servers[0].url()).await, connect(servers[1].url()).await);
    let [one, two] = ["1", "2"].map(|end| LockName::new(format!("lock:{end}")).expect("a name"));
    let backends = Backends { redis: Some(second.clone()), ..Backends::default() };
    let fair = locker(LockKind::Fair, &backends).expect("a locker");
    let own = connect(servers[0].url()).await;
    let members = vec![(Arc::new(Redisson::on(&own)) as _, one.clone()), (fair, two.clone())];
    let whole = Locks::new(Arc::new(Multi::of(members).expect("two members")));
    let (singles, queued) = (locks_of(LockKind::Redisson, first.clone()), second.connection());
    let others = locks_of(LockKind::Fair, connect(servers[1].url()).await);
    let held_two = others.lock(&two, &at_once()).await.expect("it is free");
    let patient = options(Duration::from_secs(20), LONG);
    let waiter = tokio::spawn(async move { whole.lock(&fresh_name(), &patient).await });
    eventually("it queues for the second", async || {
        let keys: Vec<String> = queued.clone().keys("distlock_fair_queue*").await.expect("keys");
        !keys.is_empty()
    })
    .await;
    let held_one = singles.lock(&one, &patient).await.expect("it was given back");
    eventually("nobody waits for the first yet", async || own.subscribed_channels() == 0).await;
    held_two.release().await.expect("a release");
    eventually("it waits for the first", async || own.subscribed_channels() > 0).await;
    let newcomer = others.try_lock(&two, at_once().lease).await.expect("an answer");
    newcomer.expect("nobody stands before him").release().await.expect("a release");
    held_one.release().await.expect("a release");
    let guard = waiter.await.expect("no panic").expect("both are free");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

#[tokio::test]
async fn a_health_check_says_whether_more_members_are_away_than_may_be() {
    let (_bed, servers) = three();
    let mut members: Vec<Arc<dyn Locker>> = Vec::new();
    for server in &servers {
        members.push(Arc::new(Redisson::on(&connect(server.url()).await)));
    }
    let strict = Locks::new(Arc::new(all_of(members.clone())));
    let lenient = Locks::new(Arc::new(all_but_one_of(members)));
    strict.check_servers().await.expect("all answer");
    servers[1].kill().expect("a kill");
    let failure = strict.check_servers().await.expect_err("one is away");
    assert!(matches!(&failure, LockError::Backend(why) if why.contains("1 of 3")), "{failure}");
    lenient.check_servers().await.expect("one may be away");
    servers[2].kill().expect("a kill");
    lenient.check_servers().await.expect_err("two may not");
}

#[tokio::test]
async fn an_acquisition_dropped_in_the_middle_leaves_no_member_behind() {
    let (_bed, servers) = three();
    let locks = Locks::new(Arc::new(all_of(members(&servers).await)));
    for polls in 1.. {
        let name = fresh_name();
        let options = at_once();
        let mut acquiring = Box::pin(locks.lock(&name, &options));
        let mut done = false;
        for _ in 0..polls {
            done |= poll_fn(|cx| Poll::Ready(acquiring.as_mut().poll(cx).is_ready())).await;
            if done {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        drop(acquiring);
        locks.flush().await;
        assert_eq!(owners(&servers, &name).await, [None, None, None], "after {polls} polls");
        if done {
            assert!(polls > 2, "it was dropped in the middle at least twice");
            break;
        }
    }
}

#[tokio::test]
async fn a_multi_lock_promises_what_its_weakest_member_does() {
    let (_bed, servers) = three();
    let server = connect(servers[0].url()).await;
    let backends = Backends { redis: Some(server), ..Backends::default() };
    let of = |kinds: &[LockKind]| {
        let lockers = kinds.iter().map(|kind| locker(*kind, &backends).expect("a locker"));
        all_of(lockers.collect()).guarantees()
    };
    let one = of(&[LockKind::Reentrant, LockKind::LuaRelease]);
    assert_eq!((one.hold, one.renewal), (HoldKind::WeakestMember, RenewalKind::No));
    assert_eq!((one.idempotent, one.reentrant), (Support::No, Support::No));
    assert_eq!(of(&[LockKind::Reentrant, LockKind::Reentrant]).reentrant, Support::Yes);
}
