//! Fencing in one call: the transaction of a guard.

use std::sync::Arc;
use std::time::Duration;

use crate::support::mysql::{plain_pool, server, try_now};
use crate::support::{LONG, Look, connect, fresh_name, granted, locks_of, options};
use distlock::mysql::{FenceError, MySqlTokens};
use distlock::{LockError, LockKind};

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_with_an_older_token_is_refused_once_a_newer_one_has_written() {
    let (pool, name) = (plain_pool(4).await, fresh_name());
    let redis = crate::support::server().url();
    let tokens = Arc::new(MySqlTokens::new(&server().await));
    let issuer = locks_of(LockKind::Redisson, connect(redis).await).with_token_issuer(tokens);
    // Another process: it is not in the first one's queue, but shares its issuer.
    let other = locks_of(LockKind::Redisson, connect(redis).await).with_token_issuer_of(&issuer);
    let old = issuer.lock(&name, &options(LONG, LONG).fenced()).await.expect("the lock");
    // A failover that forgets it: its holder does not know.
    Look::at(redis).await.delete(&name).await;
    let new = other.lock(&name, &options(LONG, LONG).fenced()).await.expect("the lock");
    let (low, high) = (old.token().expect("a token"), new.token().expect("a token"));
    assert!(low < high && !old.is_lost());

    let mut transaction = pool.begin().await.expect("a transaction");
    new.transaction(&mut transaction).await.expect("the highest token");
    new.transaction(&mut transaction).await.expect("its own again");
    transaction.commit().await.expect("an answer");

    let mut transaction = pool.begin().await.expect("a transaction");
    let refused = old.transaction(&mut transaction).await;
    assert!(
        matches!(refused, Err(FenceError::Stale { highest }) if highest == high),
        "{refused:?}"
    );
    transaction.rollback().await.expect("an answer");

    // The fence of one lock is none of another.
    let third = issuer.lock(&fresh_name(), &options(LONG, LONG).fenced()).await.expect("a lock");
    let mut transaction = pool.begin().await.expect("a transaction");
    third.transaction(&mut transaction).await.expect("a lock of its own");
    transaction.commit().await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_lost_or_has_no_token_fences_no_transaction() {
    let pool = plain_pool(2).await;
    let locks = locks_of(LockKind::Redisson, connect(crate::support::server().url()).await);
    let mut transaction = pool.begin().await.expect("a transaction");
    let guard = locks.lock(&fresh_name(), &try_now()).await.expect("a lock");
    let refused = guard.transaction(&mut transaction).await;
    assert!(matches!(refused, Err(FenceError::Lock(LockError::Unsupported(_)))), "{refused:?}");

    let short = options(LONG, Duration::from_millis(50));
    let guard = granted(&locks, &fresh_name(), &short).await;
    guard.lost().await;
    let refused = guard.transaction(&mut transaction).await;
    assert!(matches!(refused, Err(FenceError::Lock(LockError::Lost))), "{refused:?}");
    transaction.rollback().await.expect("an answer");
}
