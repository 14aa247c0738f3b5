//! The attribute `locked`, on functions of every form.
#![cfg(feature = "macros")]

use std::fmt::Display;
use std::num::ParseIntError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use distlock::{LockError, LockKind, Locks, locked};
use tokio::sync::Barrier;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::support::{
    LONG, Look, but_for_one_standstill, connect, eventually, fresh_name, locks_of, server,
};

/// An error of a caller.
#[derive(Debug)]
enum ShopError {
    Lock(LockError),
    Number(ParseIntError),
}

impl From<LockError> for ShopError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<ParseIntError> for ShopError {
    fn from(error: ParseIntError) -> Self {
        Self::Number(error)
    }
}

struct Request<T> {
    user_id: T,
    shop: (u8, String),
}

/// Counts who is inside, and the most that were at a time.
struct Shop {
    locks: Locks,
    inside: AtomicU32,
    most: AtomicU32,
    /// Where two of different keys meet inside.
    together: Barrier,
}

impl Shop {
    async fn new() -> Self {
        let locks = locks_of(LockKind::Redisson, connect(server().url()).await);
        let (inside, most) = Default::default();
        Self { locks, inside, most, together: Barrier::new(2) }
    }

    #[locked(name = "test:{run}:{user_id}", wait = "20s", lease = "30s")]
    async fn buy(&self, run: Uuid, user_id: u64) -> Result<u64, ShopError> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        if user_id == 1 {
            // Long enough for the other one to come in, if it may.
            sleep(Duration::from_millis(100)).await;
        } else {
            drop(timeout(Duration::from_secs(10), self.together.wait()).await);
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        Ok(user_id)
    }

    #[locked(locks = &self.locks, name = "test:{run}", wait = "0ms")]
    async fn count<'a>(&mut self, run: Uuid, text: &'a mut String) -> Result<&'a str, ShopError> {
        // The names of the expansion are not these.
        let (locks, name, options) = (1, 2, 3);
        let parsed: u32 = text.parse()?;
        self.inside = AtomicU32::new(parsed + locks + name + options);
        text.push('!');
        Ok(text)
    }
}

/// Owns its locks, which it moves into the body.
struct Session {
    locks: Locks,
    id: Uuid,
}

impl Session {
    #[locked(name = "test:{self.id}", lease = "1m")]
    async fn end(self, found: impl Display + Send) -> Result<impl Display, LockError> {
        drop(self.locks);
        Ok(format!("{found} by {}", self.id))
    }
}

#[locked(name = "test:{{{request.user_id}}}:{request.shop.1}", wait = "1s")]
async fn visit<T: Display + Sync>(
    locks: &Locks,
    request: &Request<T>,
    (early, late): (bool, &'static str),
) -> Result<Box<dyn Display + Send>, ShopError> {
    if early {
        return Ok(Box::new(request.shop.0));
    }
    Ok(Box::new(late))
}

#[tokio::test]
async fn calls_of_one_key_exclude_each_other_and_those_of_other_keys_do_not() {
    let (shop, run) = (Shop::new().await, Uuid::new_v4());
    let (one, other) = tokio::join!(shop.buy(run, 1), shop.buy(run, 1));
    assert_eq!((one.expect("the lock"), other.expect("the lock")), (1, 1));
    assert_eq!(shop.most.load(Ordering::SeqCst), 1, "one at a time");
    let (one, other) = tokio::join!(shop.buy(run, 2), shop.buy(run, 3));
    assert_eq!((one.expect("the lock"), other.expect("the lock")), (2, 3));
    assert_eq!(shop.most.load(Ordering::SeqCst), 2, "both at once");
}

#[tokio::test]
async fn the_body_keeps_its_names_lifetimes_types_and_question_marks() {
    let (mut shop, id) = (Shop::new().await, Uuid::new_v4());
    let mut text = "17".to_owned();
    assert_eq!(shop.count(id, &mut text).await.expect("a number"), "17!");
    assert_eq!(shop.inside.load(Ordering::SeqCst), 23);
    let refused = shop.count(id, &mut text).await;
    let Err(ShopError::Number(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("invalid digit"), "{error}");

    let locks = shop.locks.clone();
    let session = Session { locks: locks.clone(), id };
    assert_eq!(session.end("ended").await.expect("the lock").to_string(), format!("ended by {id}"));

    let request = Request { user_id: id, shop: (7, "a".to_owned()) };
    let call = |early| visit(&locks, &request, (early, "late"));
    assert_eq!(call(true).await.expect("the lock").to_string(), "7");
    // A task of its own: the future is `Send`.
    let held = locks.clone();
    let late = tokio::spawn(async move {
        visit(&held, &Request { user_id: id, shop: (7, "b".to_owned()) }, (false, "late")).await
    });
    assert_eq!(late.await.expect("no panic").expect("the lock").to_string(), "late");
}

#[tokio::test]
async fn a_busy_key_fails_after_the_wait_and_a_name_that_is_none_before_a_server_is_asked() {
    let (mut shop, run) = (Shop::new().await, Uuid::new_v4());
    let name = distlock::LockName::new(format!("test:{run}")).expect("a name");
    let guard = shop.locks.lock(&name, &distlock::LockOptions::default()).await;
    let guard = guard.expect("the lock");
    let busy = shop.count(run, &mut "1".to_owned()).await.map(str::len);
    assert!(matches!(busy, Err(ShopError::Lock(LockError::TimedOut { .. }))), "{busy:?}");
    guard.release().await.expect("a release");

    let locks = shop.locks.clone();
    let request = Request { user_id: "a\nb", shop: (7, "a".to_owned()) };
    let refused = visit(&locks, &request, (true, "late")).await.map(|_| ());
    let is_refused =
        matches!(refused, Err(ShopError::Lock(LockError::BadRequest { field: "lock name", .. })));
    assert!(is_refused, "{refused:?}");
}

#[locked(name = "{name}", wait = "1s", lease = "3s")]
async fn work_for(locks: &Locks, name: &str, time: Duration) -> Result<(), LockError> {
    sleep(time).await;
    Ok(())
}

#[tokio::test]
async fn the_lock_is_renewed_while_the_body_runs_and_its_loss_ends_the_body() {
    let url = server().url();
    let locks = locks_of(LockKind::Redisson, connect(url).await);
    let (look, name) = (Look::at(url).await, fresh_name());
    // Longer than the lease.
    work_for(&locks, name.as_str(), Duration::from_secs(4)).await.expect("it is renewed");
    assert_eq!(look.lease(&name).await, None, "it was released");

    // A renewal takes place each second.
    but_for_one_standstill(async || {
        let begun = Instant::now();
        let work = work_for(&locks, name.as_str(), LONG);
        let (outcome, ()) = tokio::join!(timeout(LONG, work), async {
            eventually("it is held", async || look.lease(&name).await.is_some()).await;
            look.delete(&name).await;
        });
        assert!(matches!(outcome, Ok(Err(LockError::Lost))), "{outcome:?}");
        let took = begun.elapsed();
        if took < Duration::from_millis(1700) { Ok(()) } else { Err(format!("{took:?}")) }
    })
    .await;
}
