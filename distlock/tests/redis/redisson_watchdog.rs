//! The watchdog of `redisson` on a real Redis: what it keeps, when it gives up, and what it leaves.

use std::time::{Duration, Instant};

use crate::support::redisson::{OwnServer, RawRedis, kept};
use crate::support::{
    ANSWER, LONG, at_once, but_for_one_standstill, eventually, fresh_name, granted,
};
use distlock::{Guard, LossCause, Release};
use redis::Script;
use testbed::{Action, Command, Rule, Times};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Renewed in time also by a server or a process that stands still for a moment.
const LEASE: Duration = Duration::from_millis(3600);
const RENEW: &str = include_str!("../../lua/renew.lua");
const ACQUIRE: &str = include_str!("../../lua/redisson_acquire.lua");

fn renewals() -> Command {
    let digest = Script::new(RENEW).get_hash().to_owned();
    // The first call of a script is by its text.
    Command::redis("").when(move |parts| {
        parts
            .get(1)
            .is_some_and(|script| *script == digest.as_bytes() || *script == RENEW.as_bytes())
    })
}

fn wanted() -> distlock::LockOptions {
    kept(Duration::from_secs(10), LEASE)
}

/// Waits, and sees that the guard is held here and there all the time.
async fn stays(guard: &Guard, raw: &RawRedis, name: &distlock::LockName, length: Duration) {
    let until = Instant::now() + length;
    while Instant::now() < until {
        let is_held = raw.lease(name).await.is_some();
        assert!(is_held && !guard.is_lost(), "there: {is_held}, {:?}", guard.lost_signal());
        sleep(Duration::from_millis(20)).await;
    }
}

async fn ends(renewals: &Rule) {
    let before = renewals.matched();
    sleep(LEASE).await;
    assert_eq!(renewals.matched(), before, "something is renewed that nobody holds");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_kept_beyond_three_leases_and_not_after_its_release() {
    let own = OwnServer::start();
    let (service, other, raw) = (own.service().await, own.service().await, own.raw().await);
    let name = fresh_name();
    let renewals = own.proxy.watch(renewals());
    let guard = service.locks.lock(&name, &wanted()).await.expect("the lock");
    stays(&guard, &raw, &name, LEASE * 4).await;
    assert!(other.locks.lock(&name, &at_once()).await.is_err(), "two holders");
    assert!(renewals.matched() >= 9, "{}", renewals.matched());
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
    ends(&renewals).await;
    drop(other.locks.lock(&name, &at_once()).await.expect("it is free"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_cannot_renew_gets_the_loss_before_the_lease_ends_at_the_server() {
    let own = OwnServer::start();
    let (service, raw) = (own.service().await, own.raw().await);
    let mut known_there = 0;
    for _ in 0..3 {
        let name = fresh_name();
        let guard = service.locks.lock(&name, &wanted()).await.expect("the lock");
        own.proxy.start_outage();
        while !guard.is_lost() {
            let is_there = raw.lease(&name).await.is_some();
            // If it is still valid now, it must have existed when the server was asked.
            assert!(is_there || guard.is_lost(), "believed in, but already forgotten");
            sleep(Duration::from_millis(2)).await;
        }
        known_there += u32::from(raw.lease(&name).await.is_some());
        let told = timeout(Duration::from_secs(1), guard.lost()).await.expect("it is told");
        assert_eq!(told, LossCause::Expired);
        own.proxy.end_outage();
        drop(guard);
        service.locks.flush().await;
        eventually("the connection is back", async || {
            service.locks.lock(&fresh_name(), &at_once()).await.is_ok()
        })
        .await;
    }
    assert!(known_there > 0, "it was never told before the lease ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_that_fail_within_validity_cost_neither_this_hold_nor_the_next() {
    let own = OwnServer::start();
    let (service, raw) = (own.service().await, own.raw().await);
    let (held, next) = (fresh_name(), fresh_name());
    // Enough for a server that is frozen for more than a third of it, and a moment longer.
    let lease = LEASE * 5 / 3;
    let wanted = kept(Duration::from_secs(10), lease);
    let guard = service.locks.lock(&held, &wanted).await.expect("the lock");
    // Two of three are answered too late, or not at all.
    let late = own.proxy.arm(renewals(), Action::CutRequest, Times::Next(2));
    stays(&guard, &raw, &held, lease * 3 / 2).await;
    assert_eq!(late.fired(), 2);
    own.act(|redis| redis.freeze());
    sleep(lease / 3 + Duration::from_millis(50)).await;
    own.act(|redis| redis.thaw());
    stays(&guard, &raw, &held, lease * 3 / 2).await;
    let another = service.locks.lock(&next, &wanted).await.expect("the lock");
    stays(&another, &raw, &next, lease * 3 / 2).await;
    assert!(!guard.is_lost());
    assert_eq!(another.release().await.expect("a release"), Release::Released);
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_lock_is_lost_at_the_next_renewal_and_can_be_taken_again() {
    let own = OwnServer::start();
    let (service, raw, name) = (own.service().await, own.raw().await, fresh_name());
    for is_taken in [false, true] {
        but_for_one_standstill(async || {
            let guard = service.locks.lock(&name, &wanted()).await.expect("the lock");
            raw.command::<()>(&["DEL", name.as_str()]).await;
            if is_taken {
                raw.hold_as_redisson(&name, LONG).await;
            }
            let removed = Instant::now();
            let told = timeout(LONG, guard.lost()).await.expect("it is told");
            let took = removed.elapsed();
            assert_eq!(told, LossCause::Taken);
            let left = if is_taken { Release::HeldByOther } else { Release::Gone };
            assert_eq!(guard.release().await.expect("a release"), left);
            if is_taken {
                raw.command::<()>(&["DEL", name.as_str()]).await;
            }
            if took < LEASE / 3 + ANSWER { Ok(()) } else { Err(format!("told after {took:?}")) }
        })
        .await;
        let again = service.locks.lock(&name, &wanted()).await.expect("the lock");
        stays(&again, &raw, &name, LEASE * 2).await;
        assert_eq!(again.release().await.expect("a release"), Release::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_acquires_and_releases_confuse_no_renewal() {
    let own = OwnServer::start();
    let (service, raw, name) = (own.service().await, own.raw().await, fresh_name());
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let (locks, name) = (service.locks.clone(), name.clone());
        tasks.spawn(async move {
            for _ in 0..25 {
                let outer = locks.lock(&name, &wanted()).await.expect("the lock");
                let owner = outer.owner().clone();
                drop(locks.lock_as(owner, &name, &wanted()).await.expect("it again"));
                outer.release().await.expect("a release");
            }
        });
    }
    tasks.join_all().await;
    service.locks.flush().await;
    let renewals = own.proxy.watch(renewals());
    ends(&renewals).await;
    let outer = service.locks.lock(&name, &wanted()).await.expect("the lock");
    let owner = outer.owner().clone();
    let inner = service.locks.lock_as(owner, &name, &wanted()).await.expect("it again");
    stays(&outer, &raw, &name, LEASE * 2).await;
    inner.release().await.expect("a release");
    stays(&outer, &raw, &name, LEASE * 2).await;
    assert_eq!(outer.release().await.expect("a release"), Release::Released);
    ends(&renewals).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_that_is_undone_is_not_renewed() {
    let own = OwnServer::start();
    let (service, raw, name) = (own.hasty().await, own.raw().await, fresh_name());
    drop(granted(&service.locks, &fresh_name(), &at_once()).await);
    service.locks.flush().await;
    let renewals = own.proxy.watch(renewals());
    let acquire = Command::redis("EVALSHA").containing(Script::new(ACQUIRE).get_hash());
    let late = own.proxy.arm(acquire, Action::DelayAnswer(ANSWER * 2), Times::Next(1));
    let outcome = service.locks.lock(&name, &wanted()).await;
    assert!(outcome.is_err() && late.fired() == 1);
    sleep(LEASE * 2).await;
    assert_eq!(renewals.matched(), 0);
    assert!(raw.holds(&name).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holds_of_a_process_are_renewed_together() {
    let own = OwnServer::start();
    let service = own.service().await;
    let renewals = own.proxy.watch(renewals());
    let mut guards = Vec::new();
    let until = Instant::now() + LEASE * 2;
    for _ in 0..150 {
        guards.push(service.locks.lock(&fresh_name(), &wanted()).await.expect("the lock"));
    }
    while Instant::now() < until {
        assert!(guards.iter().all(|guard| !guard.is_lost()));
        sleep(Duration::from_millis(20)).await;
    }
    // Six times at most, of two batches or a few more, if they were not all taken at once.
    assert!(renewals.matched() >= 6 && renewals.matched() < 60, "{}", renewals.matched());
    for guard in guards {
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
    }
}
