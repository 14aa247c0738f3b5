//! A row lock of a database. Witnesses: the count of the proxy, the number of the server's error,
//! and what another connection reads.

use std::thread;

use conformance::protocol::{Contest, Outcome, Want};
use conformance::variant::Variant;
use conformance::{Contender, fresh_name, overlaps};
use distlock::LockKind;
use testbed::{Command, Proxy, Rule};

use crate::database::{Sql, left_in_stock, put_into_stock};
use crate::scene::{
    LONG, PATIENCE, assert_both_hold, assert_kept_out, changed, enter, eventually, release,
    servers, start,
};

const KIND: LockKind = LockKind::MysqlRow;

/// A contender, and the count of the transactions that it begins.
fn start_counted(variant: Variant) -> (Contender, Proxy, Rule) {
    let database = servers().database();
    let proxy = Proxy::before(database.addr()).expect("a proxy");
    let setup = changed(KIND, |setup| {
        let url = setup.addresses.mysql.take().expect("it lives there");
        setup.addresses.mysql = Some(proxy.instead_of(database.addr(), &url));
        setup.variant = variant;
    });
    let begins = proxy.watch(Command::sql("START TRANSACTION"));
    (Contender::start_as(servers(), &setup), proxy, begins)
}

#[test]
fn under_autocommit_everybody_enters() {
    let [one, other] = [(); 2].map(|()| start_counted(Variant::WithoutTransaction));
    let name = fresh_name();
    let (held, others) = (enter(&one.0, &name), enter(&other.0, &name));
    assert_both_hold((&one.0, &held), (&other.0, &others));
    assert_eq!((one.2.matched(), other.2.matched()), (0, 0));
}

#[test]
fn in_a_transaction_one_enters() {
    let [one, other] = [(); 2].map(|()| start_counted(Variant::Usual));
    let name = fresh_name();
    let held = enter(&one.0, &name);
    assert_kept_out(&other.0, &name);
    assert!(one.2.matched() > 0 && other.2.matched() > 0);
    assert_eq!(release(&one.0, &held), Outcome::Released);
    enter(&other.0, &name);
}

#[test]
fn two_who_find_a_row_missing_and_insert_it_deadlock() {
    Sql::open().run("CREATE TABLE IF NOT EXISTS seats (name VARBINARY(512) PRIMARY KEY)");
    let name = fresh_name();
    let inserters = [(); 2].map(|()| {
        let mut sql = Sql::open();
        sql.run("START TRANSACTION");
        sql.run(&format!("SELECT name FROM seats WHERE name = '{name}' FOR UPDATE"));
        sql
    });
    let insert = format!("INSERT INTO seats VALUES ('{name}')");
    let outcomes = thread::scope(|scope| {
        let insert = &insert;
        let inserts = inserters.map(|mut sql| scope.spawn(move || sql.try_run(insert)));
        inserts.map(|insert| insert.join().expect("no panic"))
    });
    let numbers: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert_eq!(numbers.len(), 1, "{outcomes:?}");
    assert!(numbers[0].to_string().contains("1213"), "{:?}", numbers[0]);
}

#[test]
fn processes_that_meet_at_a_missing_row_enter_one_after_the_other() {
    let contenders = [(); 3].map(|()| start(KIND));
    for _ in 0..5 {
        let (name, file) = (fresh_name(), servers().fresh_path("met"));
        let want = Want::new(&name, LONG).waiting(PATIENCE);
        let met = contenders
            .each_ref()
            .map(|contender| contender.contend(Contest::new(want.clone(), 1, 1, &file), PATIENCE));
        let stays = met.map(|met| {
            let met = met.wait().expect("an answer");
            assert!(met.failures.is_empty(), "{:?}", met.failures);
            met.stays[0]
        });
        assert_eq!(overlaps(&stays), 0, "{stays:?}");
    }
}

/// Two units are in stock; a transaction has read that and does not have the lock yet.
#[test]
fn a_section_that_has_read_before_it_locks_works_on_old_state() {
    let (process, name) = (start(KIND), fresh_name());
    let (mut early, mut other) = (put_into_stock(&name, 2), Sql::open());
    // Where a server has this, it refuses to write by an old snapshot.
    let _unknown = early.try_run("SET SESSION innodb_snapshot_isolation = OFF");
    early.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    early.run("START TRANSACTION");
    assert_eq!(left_in_stock(&mut early, &name), 2);

    let held = enter(&process, &name);
    assert_eq!(process.sell_inside(held.handle, &name).expect("a database"), Some(1));
    assert_eq!(left_in_stock(&mut other, &name), 1);

    early.run(&format!("SELECT name FROM lock_rows WHERE name = '{name}' FOR UPDATE"));
    let seen = left_in_stock(&mut early, &name);
    assert_eq!(seen, 2, "it has the lock, and what it sees is old");
    early.run(&format!("UPDATE stock SET units = {} WHERE name = '{name}'", seen - 1));
    early.run("COMMIT");
    assert_eq!(left_in_stock(&mut other, &name), 1, "two were sold of two");
}

#[test]
fn a_section_whose_lock_is_its_first_read_sees_the_last_write() {
    let (first, second, name) = (start(KIND), start(KIND), fresh_name());
    let mut sql = put_into_stock(&name, 2);
    let held = enter(&first, &name);
    let before = second.busy();
    // It begins to wait before that is written.
    let waits = second.lock_later(&Want::new(&name, LONG).waiting(PATIENCE));
    eventually("the second waits", || second.busy() > before);
    assert_eq!(first.sell_inside(held.handle, &name).expect("a database"), Some(1));
    let others = waits.wait().expect("the lock is free");
    assert_eq!(second.sell_inside(others.handle, &name).expect("a database"), Some(0));
    assert_eq!(left_in_stock(&mut sql, &name), 0);
}
