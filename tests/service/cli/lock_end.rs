//! `seckill lock run`: the command does not outlive its lock.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testbed::RedisOptions;

use super::lock_run::{Bench, LUA, STUBBORN, now_ns, times};
use crate::support::{Place, servers};

/// The longest time for which a thread of this process did not get to run meanwhile.
fn longest_stall<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let ticking = scope.spawn(|| {
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
            while !done.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            longest
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        (result, ticking.join().expect("it ticks"))
    })
}

/// What was wrong when a lease ended before the command did.
fn outlived_its_lease() -> Option<String> {
    let bench = Bench::new();
    let lease = ["--lease", "1500ms", "--grace", "400ms"];
    let long = bench.start(&[&LUA[..], &lease].concat(), STUBBORN);
    bench.until_there("beats");
    let next = bench.start(&LUA, "date +%s%N > entered");
    let ended = long.end();
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.stderr.contains("could not be kept"), "{ended:?}");
    assert_eq!(next.end().code, Some(0));
    let (beats, entered) = (times(&bench.path("beats")), times(&bench.path("entered")));
    assert!(entered[0] - beats[0] >= 1_000_000_000, "the lock was held for its lease");
    let last = *beats.last().expect("it beat");
    if last >= entered[0] {
        return Some("it still worked when the next one was in".to_owned());
    }
    match times(&bench.path("term"))[..] {
        [term] if term < last => None,
        ref terms => Some(format!("asked to end at {terms:?}, killed after {last}: no grace")),
    }
}

/// The validity of a lock ends a little earlier than its lease. A machine that stands still for
/// longer than that, in that moment, ends the command too late: such a run shows nothing.
fn is_shown(early: Duration, wrong: impl Fn() -> Option<String>) {
    for _ in 0..5 {
        let (wrong, stall) = longest_stall(&wrong);
        let Some(wrong) = wrong else { return };
        assert!(stall > early, "{wrong}, though nothing stood still for more than {stall:?}");
    }
    panic!("a machine that stood still five times");
}

#[test]
fn a_lease_that_ends_first_ends_the_command_before_another_run_enters() {
    is_shown(Duration::from_millis(17), outlived_its_lease);
}

#[test]
fn a_lock_that_is_renewed_outlives_its_lease_with_the_command() {
    let bench = Bench::new();
    let work = "touch held; while [ ! -e enough ]; do sleep 0.01; done; echo done";
    let long = bench.start(&["--lease", "4500ms"], work);
    bench.until_there("held");
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(8) {
        assert_eq!(bench.run(&["--wait", "0"], "touch entered").code, Some(75));
    }
    fs::write(bench.path("enough"), "").expect("written");
    assert_eq!(long.end().stdout, "done\n");
    assert!(!bench.path("entered").exists());
}

#[test]
fn a_lock_that_is_taken_away_ends_the_command_soon() {
    let bench = Bench::new();
    let long = bench.start(&["--lease", "3s", "--grace", "300ms"], STUBBORN);
    bench.until_there("beats");
    let started = Instant::now();
    bench.redis::<()>(&["DEL", &bench.name]);
    let ended = long.end();
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.stderr.contains("was taken away"), "{ended:?}");
    assert!(started.elapsed() < Duration::from_millis(2900), "no later than its lease");
    assert_eq!(times(&bench.path("term")).len(), 1);
}

/// What was wrong when the lock's server died.
fn outlived_its_server() -> Option<String> {
    let redis = servers().bed.redis(RedisOptions::default()).expect("a Redis of one's own");
    let place = Place { redis_url: redis.url().to_owned(), ..Place::fresh() };
    let bench = Bench { place, ..Bench::new() };
    let long = bench.start(&["--lease", "2s", "--grace", "500ms"], STUBBORN);
    bench.until_there("beats");
    redis.kill().expect("killed");
    let killed = now_ns();
    let ended = long.end();
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.stderr.contains("could not be kept"), "{ended:?}");
    let last = *times(&bench.path("beats")).last().expect("it beat");
    if last >= killed + 2_000_000_000 {
        return Some("it worked beyond the lease".to_owned());
    }
    match times(&bench.path("term"))[..] {
        [term] if killed < term && term < last => None,
        ref terms => Some(format!("asked to end at {terms:?}, killed after {last}: no grace")),
    }
}

#[test]
fn a_server_that_dies_under_the_command_ends_it_within_the_lease() {
    is_shown(Duration::from_millis(22), outlived_its_server);
}
