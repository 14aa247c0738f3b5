//! `seckill lock ls --deadlocks`: runs of commands that wait for each other's locks.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::{Replica, ReplicaSpec};

use super::lock_run::{Bench, RunningCommand, until};
use super::run;
use crate::fleet::SECKILL;
use crate::support::{SECRET, servers};

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

/// The deadlocks that a replica has counted.
fn counted(replica: &Replica) -> u32 {
    let mut stream = TcpStream::connect(replica.addr()).expect("a connection");
    let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("an answer");
    let count = page.lines().find_map(|line| line.strip_prefix("distlock_deadlocks_total "));
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no counter in {page}"))
}

#[test]
fn a_deadlock_of_two_runs_is_counted_once_in_the_metrics_of_a_replica_that_takes_no_part() {
    let mut bench = Bench::new();
    let spec = ReplicaSpec::new("observer", SECKILL)
        .args(["serve", "--bind", "127.0.0.1:0", "--drain-delay-ms", "0"])
        .env("DATABASE_URL", &bench.place.database_url)
        .env("REDIS_URL", bench.place.service_redis_url())
        .env("REDIS_TIMEOUT_MS", bench.place.redis_timeout_ms())
        .env("JWT_SECRET", SECRET);
    let replica = servers().bed.replica(spec).expect("a replica");
    let base = bench.name.clone();
    let (x, y) = (("redisson", "x"), ("fair", "y"));
    let _first = start(&mut bench, &base, (x, y));
    let _second = start(&mut bench, &base, (y, x));
    assert_eq!(counted(&replica), 0, "a hold without a wait");

    fs::write(bench.path("go"), "").expect("written");
    until("the deadlock is counted", || counted(&replica) > 0);
    let output = run(&["lock", "ls", "--deadlocks"], &bench.env());
    assert_eq!(output.code, Some(1), "it lasts: {output:?}");
    assert_eq!(counted(&replica), 1);
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
