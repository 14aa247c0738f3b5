//! `seckill lock run --once-per`: two runs stand for two machines, whose cron fires at about the
//! same time.

use std::fs;
use std::time::{Duration, Instant};

use distlock::{Backend, LockKind, guarantees};
use nix::sys::signal::Signal;
use sqlx::{Connection, MySqlConnection};
use testbed::{Flavor, RedisOptions};

use super::CommandOutput;
use super::lock_run::{Bench, until};
use crate::every_kind::servers_of;
use crate::support::servers;

const HOUR_MS: i64 = 3_600_000;
const ONCE: [&str; 2] = ["--once-per", "1h"];
const JOB: &str = "echo ran >> log";

impl Bench {
    /// How often the job ran.
    fn runs(&self) -> usize {
        fs::read_to_string(self.path("log")).map_or(0, |log| log.lines().count())
    }
}

impl CommandOutput {
    fn assert_skipped(&self) {
        assert_eq!(self.code, Some(79), "{self:?}");
        assert!(self.stderr.contains(": a run began "), "{self:?}");
        assert!(self.stderr.contains(", and --once-per is 1h"), "{self:?}");
    }
}

fn kinds() -> impl Iterator<Item = (LockKind, Vec<String>)> {
    let shared = LockKind::ALL.into_iter().filter(|kind| guarantees(*kind).is_on_a_server());
    shared.map(|kind| {
        let mut flags = vec!["--kind".to_owned(), kind.to_string()];
        flags.extend(servers_of(kind));
        (kind, flags)
    })
}

/// The problem, and its repair.
#[test]
fn a_second_machine_a_moment_later_runs_the_command_only_without_once_per() {
    for (kind, flags) in kinds() {
        let bench = Bench::new();
        let plain: Vec<&str> = flags.iter().map(String::as_str).collect();
        for _machine in 0..2 {
            bench.run(&plain, JOB).fine();
        }
        assert_eq!(bench.runs(), 2, "{kind}: a plain lock is free by then");
        let once = [&plain[..], &ONCE].concat();
        bench.run(&once, JOB).fine();
        bench.run(&once, JOB).assert_skipped();
        assert_eq!(bench.runs(), 3, "{kind}");
    }
}

#[test]
fn of_machines_that_start_together_one_runs_the_command() {
    for kind in ["redisson", "lua-release", "mysql-table", "mysql-named"] {
        let bench = Bench::new();
        let flags = [&["--kind", kind][..], &ONCE].concat();
        let machines: Vec<_> =
            (0..4).map(|_| bench.start(&flags, &format!("{JOB}; sleep 0.1"))).collect();
        let mut codes: Vec<_> = machines.into_iter().map(|machine| machine.end().code).collect();
        codes.sort_unstable();
        assert_eq!(codes, [Some(0), Some(79), Some(79), Some(79)], "{kind}");
        assert_eq!(bench.runs(), 1, "{kind}");
    }
}

#[test]
fn a_command_that_failed_or_could_not_start_may_run_again_within_the_window() {
    for kind in ["redisson", "mysql-table"] {
        let bench = Bench::new();
        let flags = [&["--kind", kind][..], &ONCE].concat();
        assert_eq!(bench.run(&flags, &format!("{JOB}; exit 3")).code, Some(3), "{kind}");
        let mut line = vec!["lock".to_owned(), "run".to_owned(), "--name".to_owned()];
        line.push(bench.name.clone());
        line.extend(flags.iter().copied().chain(["--", "no-such-command"]).map(str::to_owned));
        assert_eq!(bench.start_line(&line).end().code, Some(127), "{kind}");
        bench.run(&flags, JOB).fine();
        bench.run(&flags, JOB).assert_skipped();
        assert_eq!(bench.runs(), 2, "{kind}");
    }
}

/// A machine that waits takes over.
#[test]
fn a_machine_that_waits_runs_the_command_after_another_one_has_failed() {
    let bench = Bench::new();
    let script = "touch began; while [ ! -e done ]; do sleep 0.01; done; exit 1";
    let failing = bench.start(&ONCE, script);
    bench.until_there("began");
    let waiting = bench.start(&ONCE, JOB);
    fs::write(bench.path("done"), "").expect("written");
    assert_eq!(failing.end().code, Some(1));
    waiting.end().fine();
    assert_eq!(bench.runs(), 1);
}

#[test]
fn a_run_whose_machine_died_or_that_lost_its_lock_counts() {
    let work = "touch began; for i in $(seq 400); do [ -e go ] && break; sleep 0.05; done; \
         touch ended";
    for kind in ["redisson", "mysql-table"] {
        let bench = Bench::new();
        let flags = [&["--kind", kind, "--lease", "1s", "--wait", "20s"][..], &ONCE].concat();
        let doomed = bench.start(&flags, work);
        bench.until_there("began");
        doomed.signal(Signal::SIGKILL);
        bench.run(&flags, JOB).assert_skipped();
        assert_eq!(bench.runs(), 0, "{kind}");
        fs::write(bench.path("go"), "").expect("written");
        bench.until_there("ended");
    }
    let bench = Bench::new();
    let loser = bench.start(&[&["--lease", "1s"][..], &ONCE].concat(), work);
    bench.until_there("began");
    bench.redis::<()>(&["DEL", &bench.name]);
    assert_eq!(loser.end().code, Some(76));
    bench.run(&ONCE, JOB).assert_skipped();
    // A run by hand, without the flag.
    bench.run(&[], JOB).fine();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_window_the_command_runs_again_and_no_record_is_left() {
    let second = Duration::from_secs(1);
    for kind in ["redisson", "mysql-table"] {
        let bench = Bench::new();
        let flags = ["--kind", kind, "--once-per", "1s"];
        let began = Instant::now();
        bench.run(&flags, JOB).fine();
        until("the window is over", || bench.run(&flags, JOB).code == Some(0));
        assert!(began.elapsed() >= second, "{kind}: {:?}", began.elapsed());
        assert_eq!(bench.runs(), 2, "{kind}");
        let record = format!("last_run:{{{}}}", bench.name);
        until("the record in Redis has expired", || !bench.redis::<bool>(&["EXISTS", &record]));
        if kind == "mysql-table" {
            let mut database =
                MySqlConnection::connect(&bench.place.database_url).await.expect("connected");
            let other = Bench { name: "of another command".to_owned(), ..bench };
            let count = "SELECT COUNT(*) FROM run_records WHERE name <> 'of another command'";
            let deadline = Instant::now() + Duration::from_secs(20);
            loop {
                other.run(&flags, "true");
                let rows: i64 =
                    sqlx::query_scalar(count).fetch_one(&mut database).await.expect("a table");
                if rows == 0 {
                    break;
                }
                assert!(Instant::now() < deadline, "{rows} rows are left");
            }
        }
    }
}

/// No clock of this machine moves here.
#[test]
fn the_window_is_counted_by_the_clock_of_the_server() {
    let bench = Bench::new();
    let options = RedisOptions { clock: true, ..RedisOptions::default() };
    let redis = servers().bed.redis(options).expect("a Redis of its own");
    let database = servers().bed.database_with_clock(Flavor::Any).expect("a database of its own");
    database.create_database("shop").expect("a database");
    let (redis_url, database_url) = (redis.url().to_owned(), database.url("shop"));
    let in_redis = [&["--kind", "redisson", "--redis-url", &redis_url][..], &ONCE].concat();
    let in_database = ["--kind", "mysql-table", "--database-url", &database_url];
    let in_database = [&in_database[..], &ONCE].concat();
    for flags in [&in_redis, &in_database] {
        bench.run(flags, JOB).fine();
        bench.run(flags, JOB).assert_skipped();
    }
    redis.jump_clock(HOUR_MS).expect("a clock");
    database.jump_clock(HOUR_MS).expect("a clock");
    for flags in [&in_redis, &in_database] {
        bench.run(flags, JOB).fine();
        bench.run(flags, JOB).assert_skipped();
    }
    assert_eq!(bench.runs(), 4);
}

#[test]
fn on_a_cluster_the_record_is_in_the_slot_of_the_lock() {
    let cluster = servers().bed.redis_cluster(3, 0).expect("a cluster");
    let url = cluster.url();
    let slot =
        |key: &str| cluster.masters()[0].command(&["CLUSTER", "KEYSLOT", key]).expect("a number");
    for (name, record) in [("night", "last_run:{night}"), ("job:{a}", "last_run::job:{a}")] {
        let bench = Bench { name: name.to_owned(), ..Bench::new() };
        let flags = [&["--redis-url", &url][..], &ONCE].concat();
        bench.run(&flags, JOB).fine();
        bench.run(&flags, JOB).assert_skipped();
        assert_eq!(slot(record), slot(name));
        let is_there = |master: &testbed::Redis| master.command(&["EXISTS", record]);
        let found = cluster.masters().iter().filter(|it| is_there(it).is_ok_and(|it| it == "1"));
        assert_eq!(found.count(), 1, "{record}");
    }
}

#[test]
fn once_per_of_a_kind_outside_redis_needs_the_database() {
    let bench = Bench::new();
    for (kind, mut flags) in kinds() {
        let records_with_lock = [Backend::Redis, Backend::MySql].contains(&kind.backend());
        if !records_with_lock {
            flags.extend(["--database-url", "", "--once-per", "1h"].map(str::to_owned));
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let why = format!("--once-per of {kind} needs --database-url");
            bench.run(&flags, JOB).refused(Some(&bench.place), &why);
        }
    }
    assert_eq!(bench.runs(), 0);
}
