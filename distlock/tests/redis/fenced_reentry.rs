//! One ownership has one fencing token, however often its owner enters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{LONG, connect, fresh_name, granted, options, server};
use distlock::{
    Backends, BoxFuture, Guard, LockError, LockKind, LockName, LockOptions, Locker, Locks, Multi,
    Owner, ReadWrite, Token, TokenIssuer, locker,
};

/// Counts from one.
#[derive(Default)]
struct Counter(AtomicU64);

impl TokenIssuer for Counter {
    fn next<'a>(&'a self, _: &'a LockName) -> BoxFuture<'a, Result<Token, LockError>> {
        Box::pin(async move { Ok(Token(self.0.fetch_add(1, Ordering::SeqCst) + 1)) })
    }
}

fn plain() -> LockOptions {
    options(Duration::ZERO, LONG)
}

fn fenced() -> LockOptions {
    plain().fenced()
}

async fn mechanism(kind: LockKind) -> Arc<dyn Locker> {
    let redis = Some(connect(server().url()).await);
    locker(kind, &Backends { redis, ..Backends::default() }).expect("a locker")
}

/// All kinds whose tokens come from a token issuer, each with its own.
async fn all() -> Vec<Locks> {
    let redisson = mechanism(LockKind::Redisson).await;
    let multi = Multi::same_name(vec![Arc::clone(&redisson)]).expect("a member");
    let others = [mechanism(LockKind::Fair).await, mechanism(LockKind::ReadWrite).await];
    let all = others.into_iter().chain([redisson, Arc::new(multi) as Arc<dyn Locker>]);
    all.map(|locker| Locks::new(locker).with_token_issuer(Arc::new(Counter::default()))).collect()
}

async fn enter(locks: &Locks, name: &LockName, outer: &Guard, options: LockOptions) -> Guard {
    locks.lock_as(outer.owner().clone(), name, &options).await.expect("it is the owner's")
}

async fn release(guards: impl IntoIterator<Item = Guard>) {
    for guard in guards {
        guard.release().await.expect("a release");
    }
}

#[tokio::test]
async fn a_re_entry_has_the_token_of_the_hold_around_it_and_the_next_ownership_a_higher_one() {
    for locks in all().await {
        let name = fresh_name();
        let outer = locks.lock(&name, &fenced()).await.expect("it is free");
        assert_eq!(outer.token(), Some(Token(1)));
        let inner = enter(&locks, &name, &outer, fenced()).await;
        let innermost = enter(&locks, &name, &inner, fenced()).await;
        assert_eq!((inner.token(), innermost.token()), (outer.token(), outer.token()));
        let unfenced = enter(&locks, &name, &outer, plain()).await;
        assert_eq!(unfenced.token(), None, "it did not ask");
        // Whichever of them are left.
        release([outer, innermost]).await;
        let late = enter(&locks, &name, &inner, fenced()).await;
        assert_eq!(late.token(), Some(Token(1)));
        release([late, unfenced, inner]).await;
        let next = locks.lock(&name, &fenced()).await.expect("it is free");
        assert_eq!(next.token(), Some(Token(2)));
        release([next]).await;
    }
}

#[tokio::test]
async fn where_only_the_inner_holds_ask_for_a_token_they_share_the_first_one() {
    for locks in all().await {
        let name = fresh_name();
        let outer = locks.lock(&name, &plain()).await.expect("it is free");
        let inner = enter(&locks, &name, &outer, fenced()).await;
        let another = enter(&locks, &name, &outer, fenced()).await;
        let tokens = [outer.token(), inner.token(), another.token()];
        assert_eq!(tokens, [None, Some(Token(1)), Some(Token(1))]);
        release([another, inner, outer]).await;
    }
}

#[tokio::test]
async fn a_fenced_re_entry_is_refused_where_the_token_cannot_be_known() {
    for locks in all().await {
        let name = fresh_name();
        let guard = locks.lock(&name, &fenced()).await.expect("it is free");
        let gone = guard.owner().clone();
        release([guard]).await;
        for owner in [gone, Owner::fresh()] {
            let refused = locks.lock_as(owner, &name, &fenced()).await;
            let error = refused.expect_err("nobody knows the token");
            assert!(matches!(error, LockError::BadRequest { field: "owner", .. }), "{error}");
        }
        release([locks.lock(&name, &fenced()).await.expect("nothing was taken")]).await;
    }
}

#[tokio::test]
async fn a_writer_that_continues_as_a_reader_keeps_its_token() {
    let both = ReadWrite::new(&connect(server().url()).await);
    let writers = Locks::new(both.writer()).with_token_issuer(Arc::<Counter>::default());
    let readers = Locks::new(both.reader()).with_token_issuer_of(&writers);
    let name = fresh_name();
    let writing = writers.lock(&name, &fenced()).await.expect("it is free");
    let reading = enter(&readers, &name, &writing, fenced()).await;
    assert_eq!(reading.token(), writing.token());
    release([writing, reading]).await;
}

#[tokio::test]
async fn a_lock_that_an_owner_takes_after_a_loss_is_a_new_ownership() {
    let locks =
        Locks::new(mechanism(LockKind::Fair).await).with_token_issuer(Arc::<Counter>::default());
    let name = fresh_name();
    let short = options(Duration::ZERO, Duration::from_millis(200)).fenced();
    // A token of an attempt that came too late is left out.
    let lost = granted(&locks, &name, &short).await;
    lost.lost().await;
    let patient = options(Duration::from_secs(10), LONG).fenced();
    let next = locks.lock(&name, &patient).await.expect("the lease ends");
    let after = |guard: &Guard| guard.token().expect("a token").0 + 1;
    assert_eq!(next.token(), Some(Token(after(&lost))));
    let third = after(&next);
    release([next]).await;
    let anew = enter(&locks, &name, &lost, fenced()).await;
    assert_eq!(anew.token(), Some(Token(third)), "the resource has seen the second one");
    release([anew, lost]).await;
}
