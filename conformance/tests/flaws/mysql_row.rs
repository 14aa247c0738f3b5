//! A row lock of a database. Witnesses: the count of the proxy, the number of the server's error,
//! its list of statements under way, and what another connection reads.

use conformance::protocol::{Contest, LockRequest, Outcome};
use conformance::variant::Variant;
use conformance::{Contender, PendingResponse, fresh_name, overlaps};
use distlock::LockKind;
use testbed::{Action, Command, Proxy, Rule, Times};

use crate::database::{Sql, left_in_stock, put_into_stock, url};
use crate::scene::{
    LONG, WAIT_TIMEOUT, assert_both_hold, assert_kept_out, changed, enter, eventually, release,
    servers, start,
};

const KIND: LockKind = LockKind::MysqlRow;

/// A contender, and its way to the database at that address.
fn start_by_way(variant: Variant, url: &str) -> (Contender, Proxy) {
    let database = servers().database();
    let proxy = Proxy::before(database.addr()).expect("a proxy");
    let setup = changed(KIND, |setup| {
        setup.addresses.mysql = Some(proxy.instead_of(database.addr(), url));
        setup.variant = variant;
    });
    (Contender::start_as(servers(), &setup), proxy)
}

/// A contender, and the count of the transactions that it begins from now on.
fn start_counted(variant: Variant) -> (Contender, Proxy, Rule) {
    let (contender, proxy) = start_by_way(variant, &url());
    let begins = proxy.watch(Command::sql("START TRANSACTION"));
    (contender, proxy, begins)
}

#[test]
fn under_autocommit_all_contenders_enter() {
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

/// Both have found no row, and have locked the gap in which it is missing, before either inserts.
#[test]
fn two_transactions_that_insert_a_missing_row_deadlock() {
    // The gap is between other names, so these two have tables of their own.
    let database = servers().database();
    database.create_database("gaps").expect("a fresh name");
    let url = database.url("gaps");
    Sql::open_at(&url).run("CREATE TABLE lock_rows LIKE locks.lock_rows");
    let inserters = [(); 2].map(|()| start_by_way(Variant::InsertsInside, &url));
    let name = fresh_name();
    let inserts = inserters.each_ref().map(|(_, proxy)| {
        proxy.arm(Command::sql("INSERT INTO lock_rows"), Action::HoldRequest, Times::Next(1))
    });
    let want = LockRequest::new(&name, LONG);
    let asked = inserters.each_ref().map(|(inserter, _)| inserter.lock_later(&want));
    eventually("both are about to insert", || inserts.iter().all(|insert| insert.fired() == 1));
    inserts.iter().for_each(Rule::release);
    let outcomes = asked.map(PendingResponse::wait);
    let failures: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert_eq!(failures.len(), 1, "{outcomes:?}");
    assert!(failures[0].message.contains("1213"), "{failures:?}");
}

#[test]
fn processes_that_meet_at_a_missing_row_enter_one_after_the_other() {
    let contenders = [(); 3].map(|()| start(KIND));
    for _ in 0..5 {
        let (name, file) = (fresh_name(), servers().fresh_path("met"));
        let want = LockRequest::new(&name, LONG).waiting(WAIT_TIMEOUT);
        let met = contenders.each_ref().map(|contender| {
            contender.contend(Contest::new(want.clone(), 1, 1, &file), WAIT_TIMEOUT)
        });
        let records = met.map(|met| {
            let met = met.wait().expect("an answer");
            assert!(met.failures.is_empty(), "{:?}", met.failures);
            met.records[0]
        });
        assert_eq!(overlaps(&records), 0, "{records:?}");
    }
}

/// Attempts: a slice of waiting may end between two steps of the test, and the next slice reads
/// anew.
const ROUNDS: usize = 10;

/// Two units are in stock. The second has read, and waits; the first sells one, then the second.
/// Whether that one still saw two, and so sold what was not there any more.
fn sells_by_old_state(first: &Contender, second: &Contender) -> bool {
    let name = fresh_name();
    let mut sql = put_into_stock(&name, 2);
    let held = enter(first, &name);
    let waits = second.lock_later(&LockRequest::new(&name, LONG).waiting(WAIT_TIMEOUT));
    // A statement of several that are sent together, once those before it are done.
    let waiting = format!(
        "SELECT COUNT(*) FROM information_schema.processlist \
         WHERE info LIKE CONCAT('SELECT name FROM lock_rows %', HEX('{name}'), '% FOR UPDATE%') \
         AND info NOT LIKE '%NOWAIT%'"
    );
    eventually("the second waits for the row", || sql.number(&waiting) == 1);
    assert_eq!(first.sell_inside(held.handle, &name).expect("a database"), Some(1));
    let others = waits.wait().expect("the lock is free");
    let left = second.sell_inside(others.handle, &name).expect("a database").expect("no fence");
    assert_eq!(left_in_stock(&mut sql, &name), left);
    left == 1
}

#[test]
fn a_section_that_has_read_before_it_locks_works_on_old_state() {
    let first = start(KIND);
    let second = changed(KIND, |setup| setup.variant = Variant::ReadsFirst);
    let second = Contender::start_as(servers(), &second);
    let is_old = (0..ROUNDS).any(|_| sells_by_old_state(&first, &second));
    assert!(is_old, "in no round was anything sold twice");
}

#[test]
fn a_section_whose_lock_is_its_first_read_sees_the_last_write() {
    let (first, second, name) = (start(KIND), start(KIND), fresh_name());
    let mut sql = put_into_stock(&name, 2);
    let held = enter(&first, &name);
    let before = second.busy();
    // It begins to wait before that is written.
    let waits = second.lock_later(&LockRequest::new(&name, LONG).waiting(WAIT_TIMEOUT));
    eventually("the second waits", || second.busy() > before);
    assert_eq!(first.sell_inside(held.handle, &name).expect("a database"), Some(1));
    let others = waits.wait().expect("the lock is free");
    assert_eq!(second.sell_inside(others.handle, &name).expect("a database"), Some(0));
    assert_eq!(left_in_stock(&mut sql, &name), 0);
}
