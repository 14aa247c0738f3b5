//! `redisson` when answers are lost and callers go away. Each test has a Redis of its own, and a
//! way to it that breaks.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use crate::support::dropped::up_to;
use crate::support::redisson::{OwnServer, RawRedis, Service, kept};
use crate::support::{
    ANSWER, LONG, answered, assert_released, at_once, eventually, fresh_name, granted, options,
    patient,
};
use distlock::{LockError, LockName, Release};
use redis::Script;
use testbed::{Action, Command, Times};

const ACQUIRE: &str = include_str!("../../lua/redisson_acquire.lua");
const RELEASE: &str = include_str!("../../lua/redisson_release.lua");

/// Calls of that script by its digest.
fn calls(script: &str) -> Command {
    Command::redis("EVALSHA").containing(Script::new(script).get_hash())
}

/// Makes the server know the scripts, so that each is called by its digest.
async fn warm_up(service: &Service) {
    answered(async || service.locks.lock(&fresh_name(), &at_once()).await?.release().await).await;
}

async fn count(raw: &RawRedis, name: &LockName) -> u64 {
    let holds: BTreeMap<_, _> = raw.holds(name).await;
    assert!(holds.len() <= 1, "two owners: {holds:?}");
    holds.into_values().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_whose_answer_is_cut_off_is_sent_again_and_counts_once() {
    let own = OwnServer::start();
    let (service, raw, name) = (own.service().await, own.raw().await, fresh_name());
    warm_up(&service).await;
    for action in [Action::CutAnswer, Action::ResetAnswer, Action::CutRequest, Action::CutBoth] {
        let cut = own.proxy.arm(calls(ACQUIRE), action, Times::Next(1));
        let outer = service.locks.lock(&name, &at_once()).await.expect("the lock");
        assert_eq!((cut.fired(), count(&raw, &name).await), (1, 1), "{action:?}");
        let cut = own.proxy.arm(calls(ACQUIRE), action, Times::Next(1));
        let owner = outer.owner().clone();
        let inner = service.locks.lock_as(owner, &name, &at_once()).await.expect("it again");
        assert_eq!((cut.fired(), count(&raw, &name).await), (1, 2), "{action:?}");
        assert_eq!(inner.release().await.expect("a release"), Release::Released);
        assert_eq!(outer.release().await.expect("a release"), Release::Released);
        assert_eq!(count(&raw, &name).await, 0, "{action:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_answer_is_cut_off_is_sent_again_and_counts_once() {
    let own = OwnServer::start();
    let (service, raw, name) = (own.service().await, own.raw().await, fresh_name());
    warm_up(&service).await;
    for action in [Action::CutAnswer, Action::ResetAnswer, Action::CutRequest, Action::CutBoth] {
        let outer = service.locks.lock(&name, &at_once()).await.expect("the lock");
        let owner = outer.owner().clone();
        let inner = service.locks.lock_as(owner, &name, &at_once()).await.expect("it again");
        for (guard, left) in [(inner, 1), (outer, 0)] {
            let cut = own.proxy.arm(calls(RELEASE), action, Times::Next(1));
            assert_eq!(guard.release().await.expect("a release"), Release::Released);
            assert_eq!((cut.fired(), count(&raw, &name).await), (1, left), "{action:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_without_an_answer_is_undone() {
    let own = OwnServer::start();
    let (service, other) = (own.hasty().await, Service::at(own.redis.url()).await);
    let (raw, name) = (own.raw().await, fresh_name());
    warm_up(&service).await;
    let late = Action::DelayAnswer(ANSWER * 2);
    let no_answer = |outcome: Result<(), LockError>| {
        assert!(matches!(outcome, Err(LockError::Backend(_))), "{outcome:?}");
    };
    let slow = own.proxy.arm(calls(ACQUIRE), late, Times::Next(1));
    no_answer(service.locks.lock(&name, &at_once()).await.map(drop));
    assert_eq!(slow.fired(), 1);
    eventually("it is undone", async || count(&raw, &name).await == 0).await;
    service.locks.flush().await;

    let outer = granted(&service.locks, &name, &at_once()).await;
    for is_carried_out in [true, false] {
        let action = if is_carried_out { late } else { Action::DelayRequest(ANSWER * 2) };
        let slow = own.proxy.arm(calls(ACQUIRE), action, Times::Next(1));
        let owner = outer.owner().clone();
        no_answer(service.locks.lock_as(owner, &name, &at_once()).await.map(drop));
        assert_eq!(slow.fired(), 1);
        service.locks.flush().await;
        eventually("it is undone", async || {
            tokio::time::sleep(ANSWER).await;
            count(&raw, &name).await == 1
        })
        .await;
    }
    assert!(!outer.is_lost());
    assert_released(outer.release().await, "the outer hold");
    service.locks.flush().await;
    eventually("it is free", async || other.locks.lock(&name, &at_once()).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_granted_by_a_server_that_woke_up_too_late_is_given_back() {
    for (late, seen) in [(false, true), (true, true), (false, false), (true, false)] {
        let own = OwnServer::start();
        let (service, raw, name) = (own.hasty().await, own.raw().await, fresh_name());
        if seen {
            warm_up(&service).await;
        }
        own.act(|redis| redis.freeze());
        let started = Instant::now();
        let outcome = service.locks.lock(&name, &kept(Duration::ZERO, LONG)).await.map(drop);
        assert!(matches!(outcome, Err(LockError::Backend(_))), "{outcome:?}");
        assert!(started.elapsed() >= ANSWER, "it did not wait: {:?}", started.elapsed());
        if late {
            service.locks.flush().await;
        }
        own.act(|redis| redis.thaw());
        service.locks.flush().await;
        eventually("it is given back", async || count(&raw, &name).await == 0).await;
        answered(async || service.locks.lock(&name, &at_once()).await?.release().await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_dropped_at_any_point_leaves_no_hold_and_no_renewal() {
    let own = OwnServer::start();
    let (first, second) = (own.service().await, own.service().await);
    let (raw, name) = (own.raw().await, fresh_name());
    warm_up(&first).await;
    let wanted = kept(Duration::from_secs(30), LONG);
    let mut dropped = 0;
    for round in 0..30 {
        let polls = round % 3 + 1;
        let done = up_to(polls, first.locks.lock(&name, &wanted)).await;
        dropped += u32::from(done.is_none());
        drop(done);
        first.locks.flush().await;
        assert_eq!(count(&raw, &name).await, 0, "free lock, {polls} polls");
    }
    assert!(dropped >= 5, "only {dropped} were dropped half way");
    // A waiter is pending at each look, at the subscription, and at the message.
    for polls in 1..12 {
        let holder = second.locks.lock(&name, &at_once()).await.expect("the lock");
        let mut waiting = pin!(up_to(polls, first.locks.lock(&name, &wanted)));
        let mut holder = Some(holder);
        let until = Instant::now() + Duration::from_secs(30);
        let done = loop {
            match tokio::time::timeout(Duration::from_millis(100), waiting.as_mut()).await {
                Ok(done) => break done,
                Err(_) => assert!(Instant::now() < until, "it did not get through"),
            }
            // It waits for the message.
            if let Some(holder) = holder.take() {
                drop(holder.release().await);
            }
        };
        drop(done);
        drop(holder);
        first.locks.flush().await;
        second.locks.flush().await;
        assert_eq!(count(&raw, &name).await, 0, "busy lock, {polls} polls");
        let guard = second.locks.lock(&name, &patient()).await.expect("the lock");
        guard.release().await.expect("a release");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_the_server_has_forgotten_are_sent_again() {
    let own = OwnServer::start();
    let (service, raw, name) = (own.service().await, own.raw().await, fresh_name());
    let forget = async || raw.command::<()>(&["SCRIPT", "FLUSH"]).await;
    // Renewed in time also by a server that stands still for a moment.
    let lease = Duration::from_millis(4500);
    for _ in 0..2 {
        let outer = service.locks.lock(&name, &kept(Duration::ZERO, lease)).await;
        let outer = outer.expect("the lock");
        forget().await;
        let owner = outer.owner().clone();
        let inner = service.locks.lock_as(owner, &name, &at_once()).await.expect("it again");
        inner.release().await.expect("a release");
        for _ in 0..3 {
            forget().await;
            tokio::time::sleep(lease / 2).await;
            assert!(!outer.is_lost() && count(&raw, &name).await == 1, "it is renewed");
        }
        forget().await;
        assert_eq!(outer.release().await.expect("a release"), Release::Released);
        forget().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_panics_frees_the_lock() {
    let own = OwnServer::start();
    let (service, raw, name) = (own.service().await, own.raw().await, fresh_name());
    let holder = tokio::spawn({
        let (service, name) = (service.clone(), name.clone());
        async move {
            let _guard = service.locks.lock(&name, &kept(Duration::ZERO, LONG)).await;
            panic!("on purpose");
        }
    });
    assert!(holder.await.is_err());
    service.locks.flush().await;
    assert_eq!(count(&raw, &name).await, 0);
    let short = options(Duration::ZERO, LONG);
    drop(service.locks.lock(&name, &short).await.expect("its own process gets it again"));
}
