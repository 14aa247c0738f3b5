//! The watchdog over days of simulated time, against a scripted server.
//!
//! `WATCHDOG_DAYS` says how many: 10 if it is not set. Where it is set, waits for a loss that does
//! not happen take a simulated day and not an hour: such a wait wakes forty times a second.
//!
//! Tokio's time is paused, so a day takes a moment. The server does on demand what no real one
//! does: it fails before or after it has acted, answers late, and loses locks.

mod scripted;

use std::env;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use distlock::{Guard, Lease, LockName, LockOptions, Locks, LossCause, Release};
use fastrand::Rng;
use scripted::{ANSWER, AT_ONCE, Fate, ScriptedLocker};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_hours(24);
const HOUR: Duration = Duration::from_hours(1);
/// Seeds of what the server does and of how long locks are held, and how many locks: of one alone
/// each batch is one hold.
const TROUBLES: [(u64, u32); 3] = [(20_261_121, 3), (7_777_777, 1), (31_415_926_535, 2)];

/// How long a hold is watched that is not lost.
fn longest_wait() -> Duration {
    if env::var_os("WATCHDOG_DAYS").is_some() { DAY } else { HOUR }
}

fn name(number: u32) -> LockName {
    LockName::new(format!("lock:{number}")).expect("a name")
}

fn renewed() -> LockOptions {
    LockOptions::new(Duration::ZERO, Lease::Renewed(LEASE))
}

fn quickly() -> Fate {
    Fate::Answered(AT_ONCE)
}

/// Seven of ten are answered, now and then late; every so often the server is away for minutes.
fn troubled(seed: u64) -> impl FnMut() -> Fate + Send {
    let mut random = Rng::with_seed(seed);
    let mut away_until = Instant::now();
    move || {
        let now = Instant::now();
        if now < away_until {
            return if random.bool() { Fate::LostBefore } else { Fate::LostAfter };
        }
        match random.u32(..5000) {
            0 => {
                away_until = now + Duration::from_secs(random.u64(..90));
                Fate::LostBefore
            }
            1..=750 => Fate::LostBefore,
            751..=1500 => Fate::LostAfter,
            1501..=2500 => Fate::Answered(Duration::from_millis(random.u64(..450))),
            _ => quickly(),
        }
    }
}

/// Looks at a guard until it is lost or `until`. Validity and lease change with renewals only, and
/// are compared before each; here after the last one. The steps are no divisor of anything, so that
/// each phase of a lease is seen.
async fn hold(scripted: &ScriptedLocker, guard: &Guard, name: &LockName, until: Instant) -> bool {
    scripted.server().signals.insert(name.clone(), guard.lost_signal());
    while Instant::now() < until && !guard.is_lost() {
        assert!(scripted.keeps(name), "signals in, and not kept by the server");
        sleep(Duration::from_millis(60_013)).await;
    }
    scripted.server().compare(name);
    scripted.server().signals.remove(name);
    guard.is_lost()
}

/// Takes each of `locks_held` locks, holds it for up to 50 hours and releases it, again and again
/// for that many days. Returns how many holds were lost, and how many were kept to their end.
async fn hold_for_days(days: u32, seed: u64, locks_held: u32) -> (u32, u32) {
    let scripted = ScriptedLocker::new(troubled(seed));
    let locks = Locks::new(Arc::new(scripted.clone()));
    let end = Instant::now() + days * DAY;
    let mut tasks = Vec::new();
    for number in 0..locks_held {
        let (scripted, locks) = (scripted.clone(), locks.clone());
        tasks.push(tokio::spawn(async move {
            let mut random = Rng::with_seed(seed + u64::from(number) + 1);
            let name = name(number);
            let (mut lost, mut kept) = (0_u32, 0_u32);
            while Instant::now() < end {
                let Ok(guard) = locks.lock(&name, &renewed()).await else {
                    sleep(Duration::from_secs(1)).await;
                    continue;
                };
                scripted.server().unanswered.remove(&name);
                let until = Instant::now() + Duration::from_mins(random.u64(..3000));
                if hold(&scripted, &guard, &name, until.min(end)).await {
                    lost += 1;
                    let tries = scripted.server().unanswered[&name];
                    assert!(tries >= 6, "given up after {tries} renewals without an answer");
                    assert_eq!(guard.lost().await, LossCause::Expired);
                } else {
                    kept += 1;
                }
                guard.release().await.expect("a release");
            }
            (lost, kept)
        }));
    }
    let (mut lost, mut kept) = (0, 0);
    for task in tasks {
        let (more_lost, more_kept) = task.await.unwrap_or_else(|error| panic!("{seed}: {error}"));
        lost += more_lost;
        kept += more_kept;
    }
    let calls = scripted.server().calls;
    println!(
        "{days} days, {locks_held} locks, seed {seed}: {calls} calls, {kept} kept, {lost} lost"
    );
    (lost, kept)
}

#[test]
fn in_simulated_days_of_faults_no_validity_is_too_long_or_ends_too_early() {
    let days = env::var("WATCHDOG_DAYS").map_or(10, |days| days.parse().expect("a number"));
    thread::scope(|threads| {
        for (seed, locks) in TROUBLES {
            threads.spawn(move || {
                let time = Builder::new_current_thread().enable_time().start_paused(true).build();
                let (lost, kept) =
                    time.expect("a runtime").block_on(hold_for_days(days, seed, locks));
                assert!(lost >= days / 3 && kept >= days / 3, "{seed}: {lost} lost, {kept} kept");
            });
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_the_server_reports_lost_is_signalled_within_a_third_of_its_lease() {
    let scripted = ScriptedLocker::new(quickly);
    let locks = Locks::new(Arc::new(scripted.clone()));
    let guard = locks.lock(&name(1), &renewed()).await.expect("the lock");
    sleep(Duration::from_secs(100)).await;
    let since = Instant::now();
    scripted.server().held_until.clear();
    assert_eq!(guard.lost().await, LossCause::Taken);
    assert!(since.elapsed() <= LEASE / 3 + ANSWER, "{:?}", since.elapsed());
    let calls = scripted.server().calls;
    sleep(DAY).await;
    assert_eq!(scripted.server().calls, calls, "what is lost is not renewed");
}

#[tokio::test(start_paused = true)]
async fn after_release_or_drop_no_renewal_is_sent() {
    let scripted = ScriptedLocker::new(quickly);
    let locks = Locks::new(Arc::new(scripted.clone()));
    for number in 0..1000_u32 {
        let guard = locks.lock(&name(number), &renewed()).await.expect("the lock");
        if number % 3 == 0 {
            // Around the moment at which the renewal is due.
            let late = Duration::from_millis(1) * (number % 4);
            sleep(Duration::from_millis(9_998) + late).await;
        }
        if number % 2 == 0 {
            guard.release().await.expect("a release");
        } else {
            drop(guard);
            locks.flush().await;
        }
    }
    let calls = scripted.server().calls;
    assert!(calls > 0);
    sleep(DAY).await;
    let server = scripted.server();
    assert_eq!((server.calls, server.stray), (calls, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_never_renewed_and_max_hold_ends_renewal() {
    let scripted = ScriptedLocker::new(quickly);
    let locks = Locks::new(Arc::new(scripted.clone()));
    let fixed = LockOptions::new(Duration::ZERO, Lease::Fixed(LEASE));
    let guard = locks.lock(&name(1), &fixed).await.expect("the lock");
    guard.lost().await;
    assert_eq!(scripted.server().calls, 0);

    let since = Instant::now();
    let bounded = LockOptions { max_hold: Some(Duration::from_mins(5)), ..renewed() };
    let guard = locks.lock(&name(2), &bounded).await.expect("the lock");
    guard.lost().await;
    let held = since.elapsed();
    assert!(held >= Duration::from_mins(5) && held < Duration::from_secs(301), "{held:?}");
    sleep(LEASE / 30).await;
    assert!(!scripted.keeps(&name(2)), "it is freed under its guard");
    assert_eq!(guard.release().await.expect("an answer"), Release::Gone);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_holds_are_renewed_in_batches_of_a_hundred() {
    let scripted = ScriptedLocker::new(quickly);
    let locks = Locks::new(Arc::new(scripted.clone()));
    let mut guards = Vec::new();
    for number in 0..10_000 {
        guards.push(locks.lock(&name(number), &renewed()).await.expect("the lock"));
    }
    sleep(LEASE * 10).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    let server = scripted.server();
    assert_eq!(server.largest_batch, 100);
    // Thirty-one rounds at most, each of a hundred batches.
    assert!(server.calls <= 3100, "{} calls", server.calls);
}

#[tokio::test(start_paused = true)]
async fn one_failing_renewal_does_not_hold_up_or_end_the_others() {
    // The first 40 s: nothing is answered. A hold taken meanwhile is renewed afterwards.
    let start = Instant::now();
    let scripted = ScriptedLocker::new(move || {
        if start.elapsed() < Duration::from_secs(40) { Fate::LostBefore } else { quickly() }
    });
    let locks = Locks::new(Arc::new(scripted.clone()));
    let doomed = locks.lock(&name(1), &renewed()).await.expect("the lock");
    sleep(Duration::from_secs(25)).await;
    let saved = locks.lock(&name(2), &renewed()).await.expect("the lock");
    assert_eq!(doomed.lost().await, LossCause::Expired);
    let lost = timeout(longest_wait(), saved.lost()).await;
    assert!(lost.is_err(), "it is renewed for ever");
    let again = locks.lock(&name(1), &renewed()).await.expect("the lost lock is free");
    assert!(timeout(longest_wait(), again.lost()).await.is_err(), "and renewed for its new holder");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_panics_leaves_its_holds_to_their_leases_and_costs_no_others() {
    let mut calls = 0;
    let scripted = ScriptedLocker::new(move || {
        calls += 1;
        if calls == 1 { Fate::Panics } else { quickly() }
    });
    let locks = Locks::new(Arc::new(scripted.clone()));
    let doomed = locks.lock(&name(1), &renewed()).await.expect("the lock");
    sleep(LEASE / 6).await;
    let saved = locks.lock(&name(2), &renewed()).await.expect("the lock");
    assert_eq!(doomed.lost().await, LossCause::Expired);
    assert!(timeout(longest_wait(), saved.lost()).await.is_err(), "it is renewed for ever");
    let later = locks.lock(&name(3), &renewed()).await.expect("the lock");
    assert!(timeout(longest_wait(), later.lost()).await.is_err(), "and so is what comes later");
}
