//! `fair` and both sides of `read-write` when an answer is lost or the server hangs.

use std::sync::Arc;
use std::time::Instant;

use crate::support::proxy::{Accident, Proxy};
use crate::support::scene::{LOOK, Scene, at_once};
use crate::support::{ANSWER, connect, connect_hasty, eventually, server};
use distlock::{
    Backends, LockError, LockKind, Locker, Locks, ReadWrite, RedisServer, Release, locker,
};
use testbed::{Bed, RedisOptions};

/// Each kind, by a connection of its own.
async fn kinds(url: &str) -> [(&'static str, Locks); 3] {
    kinds_of(connect(url).await)
}

fn kinds_of(server: RedisServer) -> [(&'static str, Locks); 3] {
    let both = ReadWrite::new(&server);
    let backends = Backends { redis: Some(server), ..Backends::default() };
    let fair = locker(LockKind::Fair, &backends).expect("a locker");
    let kinds: [Arc<dyn Locker>; 3] = [fair, both.reader(), both.writer()];
    kinds.map(|locker| (locker.name(), Locks::new(locker)))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_whose_answer_is_lost_counts_once() {
    let proxy = Proxy::before(server()).await;
    for (kind, locks) in kinds(proxy.url()).await {
        let scene = Scene::new().await;
        let outer = locks.lock(&scene.name, &at_once()).await.expect("the lock");
        let owner = outer.owner().clone();
        proxy.plan("EVALSHA", Accident::AnswerLost);
        let inner = locks.lock_as(owner, &scene.name, &at_once()).await.expect("its own lock");
        proxy.happened().await;
        for guard in [inner, outer] {
            assert_eq!(guard.release().await.expect("a release"), Release::Released, "{kind}");
        }
        assert_eq!(scene.keys().await, [""; 0], "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_answer_is_lost_was_a_release() {
    let proxy = Proxy::before(server()).await;
    for (kind, locks) in kinds(proxy.url()).await {
        let scene = Scene::new().await;
        // From here on the server knows the scripts by their digests.
        let before = locks.lock(&scene.name, &at_once()).await.expect("the lock");
        before.release().await.expect("a release");
        let outer = locks.lock(&scene.name, &at_once()).await.expect("the lock");
        let owner = outer.owner().clone();
        let inner = locks.lock_as(owner, &scene.name, &at_once()).await.expect("its own lock");
        for (guard, accident) in [(inner, Accident::AnswerLost), (outer, Accident::Lost)] {
            let others_before = scene.keys().await.len();
            proxy.plan("EVALSHA", accident);
            assert_eq!(guard.release().await.expect("a release"), Release::Released, "{kind}");
            proxy.happened().await;
            assert_eq!(others_before, 1, "{kind}: it was freed too early");
        }
        assert_eq!(scene.keys().await, [""; 0], "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_does_after_it_hung_is_undone() {
    for number in 0..3 {
        let (bed, redis) = tokio::task::block_in_place(|| {
            let bed = Bed::start().expect("a private bed");
            let redis = bed.redis(RedisOptions::default()).expect("Redis is installed");
            (bed, redis)
        });
        let hasty = [connect_hasty(redis.url()).await, connect_hasty(redis.url()).await];
        let [(_, free), (_, patient)] =
            hasty.map(|server| kinds_of(server).into_iter().nth(number).expect("a kind"));
        let [(_, fair), _, (_, writers)] = kinds(redis.url()).await;
        let (scene, busy) = (Scene::at(redis.url()).await, Scene::at(redis.url()).await);
        // The lock that is waited for is held by the kind's own, or by a writer.
        let holder = if number == 0 { &fair } else { &writers };
        let holder = holder.lock(&busy.name, &at_once()).await.expect("the lock");
        let order = Arc::default();
        let waiter = busy.waiter(&patient, number, &order);
        eventually("it waits", async || busy.waiters().await == 1).await;

        tokio::task::block_in_place(|| redis.freeze()).expect("it freezes");
        // Long enough for a look of the waiter to come and fail.
        let frozen = Instant::now();
        while frozen.elapsed() < LOOK + ANSWER * 2 {
            let refused = free.lock(&scene.name, &at_once()).await;
            assert!(matches!(refused, Err(LockError::Backend(_))), "{number}: {:?}", refused.err());
        }
        tokio::task::block_in_place(|| redis.thaw()).expect("it thaws");
        free.flush().await;
        eventually("nothing is left of what was refused, and the waiter waits once", async || {
            scene.keys().await.is_empty() && busy.waiters().await == 1
        })
        .await;
        assert!(!waiter.is_finished(), "{number}");
        assert_eq!(holder.release().await.expect("a release"), Release::Released, "{number}");
        waiter.await.expect("the waiter outlives the failure");
        patient.flush().await;
        assert_eq!(busy.keys().await, [""; 0], "{number}");
        drop(redis);
        tokio::task::block_in_place(|| drop(bed));
    }
}
