//! What `lua-release` keeps in a real Redis. What every kind holds is in `conformance/tests/`.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::{Look, at_once, fresh_name, locks, options, server};
use distlock::{LockError, Release};
use uuid::Uuid;

async fn look() -> Look {
    Look::at(server().url()).await
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
async fn a_release_distinguishes_freed_held_by_another_and_not_held() {
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
