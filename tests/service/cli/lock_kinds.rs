//! `seckill lock run` with every kind of lock that other processes meet.

use std::fs;
use std::time::{Duration, Instant};

use distlock::{Backend, Fencing, HoldKind, LockKind, guarantees};
use sqlx::{Connection, MySqlConnection};

use super::lock_run::{Bench, STUBBORN, times};
use super::run;
use crate::every_kind::servers_of;
use crate::fleet::SECKILL;

/// Every kind that lives on such servers, and the flags that name it and them.
fn flags(kind: LockKind) -> Vec<String> {
    let mut flags = vec!["--kind".to_owned(), kind.as_str().to_owned()];
    flags.extend(servers_of(kind));
    flags
}

fn kinds() -> impl Iterator<Item = LockKind> {
    LockKind::ALL.into_iter().filter(|kind| kind.backend() != Backend::Process)
}

fn migrated() -> Bench {
    let bench = Bench::new();
    run(&["migrate"], &bench.env()).fine();
    bench
}

#[test]
fn runs_of_every_kind_exclude_each_other_and_hand_the_exit_code_through() {
    let bench = migrated();
    for kind in kinds() {
        let log = format!("{kind}.log");
        let script = format!("for i in 1 2 3; do echo $$ >> {log}; sleep 0.03; done; exit 7");
        let flags = flags(kind);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let runs: Vec<_> = (0..3).map(|_| bench.start(&flags, &script)).collect();
        for run in runs {
            let ended = run.end();
            assert_eq!(ended.code, Some(7), "{kind}: {ended:?}");
        }
        let log = fs::read_to_string(bench.path(&log)).expect("a log");
        let ids: Vec<&str> = log.lines().collect();
        assert_eq!(ids.len(), 9, "{kind}: {log}");
        let alone = |three: &[&str]| three.iter().all(|id| *id == three[0]);
        assert!(ids.chunks(3).all(alone), "{kind}: {log}");
        let free = bench.run(&[&flags[..], &["--wait", "0"]].concat(), "exit 0");
        assert_eq!(free.code, Some(0), "{kind} was not released: {free:?}");
    }
}

/// Why the help asks for one kind a name.
#[test]
fn a_run_of_some_other_kinds_enters_beside_a_holder_of_the_same_name() {
    let bench = migrated();
    for kind in ["fair", "read-write", "mysql-named", "mysql-table"] {
        let other = format!("'{SECKILL}' lock run --name '{}' --kind {kind}", bench.name);
        let inside = bench.run(&["--kind", "redisson"], &format!("{other} --wait 0 -- echo in"));
        assert_eq!(inside.fine(), "in\n", "{kind}");
    }
}

#[test]
fn a_lock_that_lives_in_a_database_makes_its_tables_if_they_are_missing() {
    let bench = Bench::new();
    for flags in [&["--kind", "mysql-table"][..], &["--kind", "redisson", "--token"]] {
        assert_eq!(bench.run(flags, "echo ran").fine(), "ran\n", "{flags:?}");
    }
}

#[test]
fn a_token_rises_from_run_to_run_for_every_kind_that_has_one() {
    let bench = migrated();
    let mut with_tokens = 0;
    for kind in kinds() {
        let flags = flags(kind);
        let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let untold = bench.run(&flags, "echo \"${LOCK_TOKEN-none}\"");
        assert_eq!(untold.fine(), "none\n", "{kind}: only for those who ask");
        flags.push("--token");
        if !matches!(guarantees(kind).fencing, Fencing::Optional | Fencing::Yes) {
            bench.run(&flags, "true").refused(Some(&bench.place), "--token");
            continue;
        }
        let tokens: Vec<u64> = (0..3)
            .map(|_| bench.run(&flags, "echo $LOCK_TOKEN").fine().trim().parse().expect("a number"))
            .collect();
        assert!(tokens.is_sorted_by(|one, next| one < next), "{kind}: {tokens:?}");
        with_tokens += 1;
    }
    assert!(with_tokens >= 3, "{with_tokens}");
}

#[test]
fn settings_of_one_kind_are_refused_with_another_and_work_with_their_own() {
    let bench = Bench::new();
    let refused = |flags: &[&str], why| {
        bench.run(flags, "touch ran").refused(Some(&bench.place), why);
    };
    refused(&["--kind", "fair", "--lock-replication", "2"], "is for the lock redisson");
    refused(&["--redlock-restart-delay-ms", "60000"], "is for the lock redlock, not for redisson");
    let redlock = flags(LockKind::Redlock);
    let redlock: Vec<&str> = redlock.iter().map(String::as_str).collect();
    let short = [&redlock[..], &["--redlock-restart-delay-ms", "1000"]].concat();
    refused(&short, "at least the lease of 30000 ms");

    // It has no replica, so no attempt gets a lock, and none is left.
    let alone = bench.run(&["--lock-replication", "1"], "touch ran");
    assert_eq!(alone.code, Some(69), "{alone:?}");
    assert!(alone.stderr.contains("0 of 1 replicas"), "{alone:?}");
    assert!(!bench.path("ran").exists());
    assert_eq!(bench.run(&["--wait", "0"], "exit 7").code, Some(7));

    // The count starts at zero.
    let new = [&redlock[..], &["--lease", "1s", "--redlock-restart-delay-ms", "1000"]].concat();
    assert_eq!(bench.run(&new, "exit 7").code, Some(7), "within the usual wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_the_database_ends_ends_the_command() {
    let bench = tokio::task::block_in_place(migrated);
    let kind =
        LockKind::ALL.into_iter().find(|kind| guarantees(*kind).hold == HoldKind::Transaction);
    let flags = flags(kind.expect("a lock that is a transaction"));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    // Longer than its lease, in which the database must hear of it.
    let short = [&flags[..], &["--lease", "1s"]].concat();
    let began = Instant::now();
    let long = loop {
        let long = bench.run(&short, "sleep 2.5; echo done");
        // A process that stands still for the lease loses the lock, which is told.
        if long.code != Some(76) || began.elapsed() > Duration::from_mins(1) {
            break long;
        }
    };
    assert_eq!(long.fine(), "done\n");

    // So long that it does not end before the loss is noticed.
    let lease = ["--lease", "6s", "--grace", "200ms"];
    let long = bench.start(&[&flags[..], &lease].concat(), STUBBORN);
    bench.until_there("beats");
    let mut database =
        MySqlConnection::connect(&bench.place.database_url).await.expect("connected");
    let holder = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx t \
         JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
         WHERE p.db = DATABASE()";
    let holder: u64 =
        sqlx::query_scalar(holder).fetch_one(&mut database).await.expect("it is open");
    let kill = format!("KILL {holder}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(kill)).execute(&mut database).await.expect("killed");
    let ended = long.end();
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.stderr.contains("was taken away"), "{ended:?}");
    assert_eq!(times(&bench.path("term")).len(), 1);
}
