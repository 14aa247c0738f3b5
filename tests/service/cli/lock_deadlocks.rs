//! `seckill lock ls --deadlocks`: runs of commands that wait for each other's locks.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::lock_run::{Bench, RunningCommand, until};
use super::run;
use crate::fleet::SECKILL;

/// A lock of the bench: its kind, and how its name ends.
type BenchLock = (&'static str, &'static str);

/// Takes the first lock, waits for the file `go`, and takes the second one inside.
fn start(bench: &mut Bench, base: &str, (outer, inner): (BenchLock, BenchLock)) -> RunningCommand {
    bench.name = format!("{base} {}", outer.1);
    let script = format!(
        "touch 'has {}'; until [ -e go ]; do sleep 0.01; done; \
         exec '{SECKILL}' lock run --kind {} --name '{base} {}' --wait 30s -- true",
        outer.1, inner.0, inner.1
    );
    let running = bench.start(&["--kind", outer.0], &script);
    bench.until_there(&format!("has {}", outer.1));
    running
}

#[test]
fn two_runs_that_take_two_locks_in_opposite_order_are_listed_and_logged() {
    let mut bench = Bench::new();
    run(&["migrate"], &bench.env()).fine();
    let base = bench.name.clone();
    // Each kind has its own server. What waits for what is in Redis.
    let (x, y) = (("redisson", "x"), ("mysql-table", "y"));
    let first = start(&mut bench, &base, (x, y));
    let second = start(&mut bench, &base, (y, x));
    let none = run(&["lock", "ls", "--deadlocks"], &bench.env());
    assert_eq!(none.fine().trim(), "no deadlock");

    fs::write(bench.path("go"), "").expect("written");
    let mut listed = None;
    until("the deadlock is listed", || {
        let output = run(&["lock", "ls", "--deadlocks"], &bench.env());
        listed = (output.code == Some(1)).then_some(output.stdout);
        listed.is_some()
    });
    let listed = listed.expect("a list");
    for part in [format!("{base} x (redisson)"), format!("{base} y (mysql-table)")] {
        assert_eq!(listed.matches(&part).count(), 2, "{part} is held and waited for in {listed}");
    }
    let output = run(&["lock", "ls", "--deadlocks", "--json"], &bench.env());
    let json: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let tasks = json["deadlocks"][0]["tasks"].as_array().expect("tasks");
    assert_eq!(tasks.len(), 2, "{json}");
    for (task, next) in tasks.iter().zip(tasks.iter().cycle().skip(1)) {
        assert_eq!(task["waits_for"], next["holds"], "{json}");
        assert!(
            task["process"].as_str().is_some_and(|text| text.starts_with("true on ")),
            "{json}"
        );
        assert!(task["waited_ms"].is_u64(), "{json}");
    }

    // Nothing ends the waits but the jobs' owners.
    first.signal(Signal::SIGTERM);
    let ended = first.end();
    assert!(ended.stderr.contains("deadlock: true on "), "{ended:?}");
    let second = second.end();
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(second.stderr.contains("deadlock: true on "), "{second:?}");
    let none = run(&["lock", "ls", "--deadlocks"], &bench.env());
    assert_eq!(none.fine().trim(), "no deadlock");
}

/// The detector only reports.
#[test]
fn a_run_whose_deadlocks_cannot_be_looked_for_runs_all_the_same() {
    let bench = Bench::new();
    let damaged = [&bench.env()[..], &[("SECKILL_HELD_LOCKS", "damaged")]].concat();
    let line = ["lock", "run", "--name", &bench.name, "--", "true"];
    let output = run(&line, &damaged);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stderr.contains("deadlocks are not looked for"), "{output:?}");
}

#[test]
fn deadlocks_are_not_looked_for_without_redis_or_in_one_kind_alone() {
    let bench = Bench::new();
    let refused = run(&["lock", "ls", "--deadlocks"], &[]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--deadlocks needs --redis-url (REDIS_URL)"), "{refused:?}");
    for flags in [&["--kind", "fair"][..], &["--prefix", "a"], &["--watch"]] {
        let refused = run(&[&["lock", "ls", "--deadlocks"], flags].concat(), &bench.env());
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("cannot be used with"), "{refused:?}");
    }
    let away = [("REDIS_URL", "redis://127.0.0.1:1/")];
    let failed = run(&["lock", "ls", "--deadlocks"], &away);
    assert_eq!(failed.code, Some(69), "{failed:?}");
    assert!(failed.stderr.contains("deadlocks: "), "{failed:?}");
}
