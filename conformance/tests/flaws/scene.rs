//! What the tests of flaws have in common.

use std::time::Duration;

use conformance::counter::Counter;
use conformance::protocol::{AcquiredLock, LockRequest, Outcome, Setup};
use conformance::{Contender, Servers, fresh_name, setup};
use distlock::LockKind;
use testbed::{Proxy, Redis};

pub(crate) use conformance::{WAIT_TIMEOUT, eventually};

/// A lease that is soon over.
pub(crate) const SHORT: Duration = Duration::from_millis(800);
/// A lease that does not end in a test.
pub(crate) const LONG: Duration = Duration::from_mins(2);

pub(crate) fn servers() -> &'static Servers {
    Servers::shared()
}

pub(crate) fn start(kind: LockKind) -> Contender {
    Contender::start(servers(), kind)
}

/// A contender on the one Redis, by way of a proxy of its own.
pub(crate) fn start_by_proxy(kind: LockKind) -> (Contender, Proxy) {
    let (redis, mut setup) = (servers().redis(), setup(servers(), kind));
    let proxy = Proxy::before(redis.addr()).expect("a proxy");
    setup.addresses.redis = Some(proxy.instead_of(redis.addr(), redis.url()));
    // It waits for as long as the proxy is told to hold something back.
    setup.addresses.redis_answer_ms = u64::try_from(WAIT_TIMEOUT.as_millis()).ok();
    (Contender::start_as(servers(), &setup), proxy)
}

/// How a contender of that kind is set up, with something changed.
pub(crate) fn changed(kind: LockKind, change: impl FnOnce(&mut Setup)) -> Setup {
    let mut setup = setup(servers(), kind);
    change(&mut setup);
    setup
}

/// A short lease that is not renewed.
pub(crate) fn briefly(name: &str) -> LockRequest {
    LockRequest::new(name, SHORT).unrenewed()
}

/// Takes a lock that is free, for long.
#[track_caller]
pub(crate) fn enter(contender: &Contender, name: &str) -> AcquiredLock {
    contender.lock(&LockRequest::new(name, LONG)).expect("the lock is free")
}

/// Waits for a lock that will be free, and takes it for long.
#[track_caller]
pub(crate) fn enter_later(contender: &Contender, name: &str) -> AcquiredLock {
    contender
        .lock(&LockRequest::new(name, LONG).waiting(WAIT_TIMEOUT))
        .expect("the lock becomes free")
}

/// Takes a lock of a fresh name for a short time.
#[track_caller]
pub(crate) fn enter_briefly(contender: &Contender) -> (String, AcquiredLock) {
    let name = fresh_name();
    // An answer that comes later than its lease ends is asked for again.
    let held = contender.insist(&briefly(&name));
    (name, held)
}

#[track_caller]
pub(crate) fn assert_kept_out(contender: &Contender, name: &str) {
    assert_kept_out_for(contender, name, Duration::ZERO);
}

#[track_caller]
pub(crate) fn assert_kept_out_for(contender: &Contender, name: &str, wait: Duration) {
    match contender.lock(&LockRequest::new(name, LONG).waiting(wait)) {
        Err(failure) => assert_eq!(failure.code, "timed_out", "{}", failure.message),
        Ok(held) => panic!("it got the lock: {held:?}"),
    }
}

#[track_caller]
pub(crate) fn release(contender: &Contender, held: &AcquiredLock) -> Outcome {
    contender.release(held.handle).expect("an answer")
}

/// A hold, and whose it is.
pub(crate) type ContenderHold<'a> = (&'a Contender, &'a AcquiredLock);

/// Two hold the same lock at the same time without a warning. Each does something under it after
/// the other had got it.
#[track_caller]
pub(crate) fn assert_both_hold((one, held): ContenderHold<'_>, (other, others): ContenderHold<'_>) {
    let effects = servers().fresh_path("effects");
    for (contender, held) in [(one, held), (other, others)] {
        assert!(contender.effect(held.handle, &effects).expect("a file"), "it was warned");
    }
    assert!(!one.has_told_of_loss(held.handle) && !other.has_told_of_loss(others.handle));
    let done = Counter::open(&effects).and_then(|counter| counter.read()).expect("a file");
    assert_eq!(done, 2);
}

/// The rest of a key's lease in ms; -1 if it has none, -2 if there is no such key.
pub(crate) fn lease_left_ms(redis: &Redis, name: &str) -> i64 {
    let answer = redis.command(&["PTTL", name]).expect("an answer");
    answer.trim().parse().expect("a number")
}
