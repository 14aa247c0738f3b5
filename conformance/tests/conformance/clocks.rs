//! A process whose wall clock is minutes off, among others: what a kind leaves to its server's
//! clock is left to that.

use std::thread;
use std::time::Duration;

use conformance::clock::{between, now_ns};
use conformance::protocol::{LockRequest, Outcome};
use conformance::{Contender, fresh_name};
use distlock::{LockKind, RenewalKind};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, SqlSafeStr};
use tokio::runtime::Builder;

use crate::arena::{
    Applicability, Arena, Check, LONG, SHORT, SLACK, Subject, await_busy, eventually, has_lease,
    patiently,
};

/// How far the clock is ahead, or behind: further than any lease is long.
const MINUTES: i64 = 5;
const OFFSETS_MS: [i64; 2] = [MINUTES * 60_000, -MINUTES * 60_000];
/// Rows that were free for less are not reaped.
const UNUSED: Duration = Duration::from_mins(1);

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "a_clock_that_is_minutes_off_neither_ends_a_lease_nor_lengthens_it",
        asked: by_the_servers_clock,
        run: a_clock_is_off,
    },
    Check {
        name: "a_reaper_whose_clock_is_minutes_off_takes_rows_by_the_servers_clock",
        asked: |subject| {
            Applicability::of_those_that(rows_of(subject.kind).is_some(), "leaves no rows behind")
        },
        run: a_reapers_clock_is_off,
    },
];

fn by_the_servers_clock(subject: &Subject) -> Applicability {
    if subject.kind == LockKind::GetsetTimestamp {
        return Applicability::No("trusts the clocks of the clients");
    }
    Applicability::of_those_that(subject.promise.is_on_a_server(), "lives in no server")
}

/// The table with a row for each name.
fn rows_of(kind: LockKind) -> Option<&'static str> {
    match kind {
        LockKind::MysqlTable => Some("lock_holders"),
        LockKind::MysqlRow => Some("lock_rows"),
        _ => None,
    }
}

/// All at the same time, since each waits for leases.
fn a_clock_is_off(arena: &Arena) {
    let (setup, lease) = arena.setup_that_lasts();
    let off = |offset_ms| Contender::start_with_clock(arena.servers, &setup, offset_ms);
    let pairs = OFFSETS_MS.map(|offset_ms| (off(offset_ms), arena.contender_as(&setup)));
    thread::scope(|scope| {
        for (off, right) in &pairs {
            scope.spawn(|| meet(arena, lease, off, right));
            scope.spawn(|| meet(arena, lease, right, off));
        }
    });
}

/// One of them has a clock that is off. A hold that is renewed has the lease `renewed`.
fn meet(arena: &Arena, renewed: Duration, holder: &Contender, next: &Contender) {
    if has_lease(&arena.promise) {
        let name = fresh_name();
        let held = holder.insist(&LockRequest::new(&name, SHORT).unrenewed());
        let then = next.lock(&patiently(&name)).expect("the lease ends");
        let valid_until_ns = held.valid_until_ns.expect("an end");
        assert!(valid_until_ns <= then.acquired_ns, "two believed in it: {held:?} {then:?}");
        let took = between(held.acquired_ns, then.acquired_ns);
        assert!(took <= SHORT + SLACK, "{took:?} for {SHORT:?}");
        assert!(!next.is_lost(then.handle));
        assert_eq!(next.release(then.handle), Ok(Outcome::Released));
    }
    let name = fresh_name();
    let renews = matches!(arena.promise.renewal, RenewalKind::Yes | RenewalKind::Heartbeat);
    let lease = if renews { renewed } else { LONG };
    let held = holder.insist(&LockRequest::new(&name, lease));
    let before = next.busy();
    let waiting = next.lock_later(&patiently(&name));
    await_busy(next, before);
    if renews {
        let is_over = || between(held.acquired_ns, now_ns()) > lease * 4 / 3;
        eventually("its first lease is over", is_over);
    }
    assert!(!holder.is_lost(held.handle));
    let releasing_ns = now_ns();
    assert_eq!(holder.release(held.handle), Ok(Outcome::Released));
    let then = waiting.wait().expect("it was released");
    assert!(then.acquired_ns >= releasing_ns, "it was taken from its holder");
    assert!(!next.is_lost(then.handle));
    assert_eq!(next.release(then.handle), Ok(Outcome::Released));
}

/// In tables of its own: a reaper takes the rows of all processes.
fn a_reapers_clock_is_off(arena: &Arena) {
    let table = rows_of(arena.kind).expect("it is asked of no other");
    let mut setup = arena.setup();
    let tables = arena.servers.fresh_tables();
    setup.addresses.mysql = Some(tables.clone());
    let holder = Contender::start_as(arena.servers, &setup);
    let [ahead, behind] =
        OFFSETS_MS.map(|offset_ms| Contender::start_with_clock(arena.servers, &setup, offset_ms));
    let [held, free] = [(); 2].map(|()| fresh_name());
    let others = holder.insist(&LockRequest::new(&held, LONG));
    let released = holder.insist(&LockRequest::new(&free, LONG));
    assert_eq!(holder.release(released.handle), Ok(Outcome::Released));
    let is_there = |name: &str| is_there(&tables, table, name);

    // By its own clock both have been free for minutes.
    ahead.reap(UNUSED);
    assert!(is_there(&held) && is_there(&free), "they are too young");
    // By its own clock both are of the future.
    eventually("what is free is reaped", || {
        behind.reap(Duration::from_millis(1));
        !is_there(&free)
    });
    assert!(is_there(&held), "its holder has it");
    assert!(!holder.is_lost(others.handle));
    assert_eq!(holder.release(others.handle), Ok(Outcome::Released));
}

fn is_there(tables: &str, table: &str, name: &str) -> bool {
    let sql = format!("SELECT COUNT(*) FROM {table} WHERE name = '{name}'");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let count: i64 = runtime.block_on(async {
        let mut database = MySqlConnection::connect(tables).await.expect("a database");
        let count = sqlx::query_scalar(AssertSqlSafe(sql).into_sql_str());
        count.fetch_one(&mut database).await.expect("an answer")
    });
    count == 1
}
