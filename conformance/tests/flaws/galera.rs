//! Two nodes of a Galera cluster, and a process at each.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Duration;

use conformance::protocol::{Failure, LockRequest, Outcome};
use conformance::variant::Variant;
use conformance::{Contender, fresh_name, setup, with_tables};
use distlock::LockKind;
use testbed::{Action, Command, Database, Proxy, Rule, Times};

use crate::database::{Sql, left_in_stock, put_into_stock_at};
use crate::scene::{
    WAIT_TIMEOUT, assert_both_hold, assert_kept_out, assert_kept_out_for, enter, enter_later,
    eventually, release, servers,
};

/// How often two transactions meet, if neither of them commits.
const TRIES: usize = 5;
const LEASE: Duration = Duration::from_millis(800);
/// A lease that a machine does not stand still for.
const RENEWED_LEASE: Duration = Duration::from_secs(4);

/// Where the tables of the locks are, at both nodes.
fn nodes() -> &'static [(Database, String); 2] {
    static NODES: OnceLock<[(Database, String); 2]> = OnceLock::new();
    NODES.get_or_init(|| {
        let nodes = servers().bed().galera(false).expect("Galera is installed");
        with_tables(&nodes[0]);
        nodes.map(|node| {
            let url = node.url("locks");
            (node, url)
        })
    })
}

/// What the other node has written is read, however late it comes.
fn sql_at(url: &str) -> Sql {
    let mut sql = Sql::open_at(url);
    sql.run("SET SESSION wsrep_sync_wait = 1");
    sql
}

fn start_at(url: &str, variant: Variant, kind: LockKind) -> Contender {
    // It needs no other servers.
    let mut setup = setup(servers(), LockKind::None);
    (setup.kind, setup.variant) = (kind.to_string(), variant);
    setup.addresses.mysql = Some(url.to_owned());
    Contender::start_as(servers(), &setup)
}

fn at_both(variant: Variant, kind: LockKind) -> [Contender; 2] {
    nodes().each_ref().map(|(_, url)| start_at(url, variant, kind))
}

#[test]
fn each_node_grants_a_named_lock() {
    let [one, other] = at_both(Variant::OfAnyServer, LockKind::MysqlNamed);
    let third = start_at(&nodes()[0].1, Variant::OfAnyServer, LockKind::MysqlNamed);
    let name = fresh_name();
    let (held, others) = (enter(&one, &name), enter(&other, &name));
    assert_both_hold((&one, &held), (&other, &others));
    // It is a lock for those who meet at one node.
    assert_kept_out(&third, &name);
}

#[test]
fn a_lock_in_a_table_is_one_for_both_nodes() {
    let [one, other] = at_both(Variant::Usual, LockKind::MysqlTable);
    for (first, second) in [(&one, &other), (&other, &one)] {
        let name = fresh_name();
        let held = enter(first, &name);
        assert_kept_out(second, &name);
        assert_eq!(release(first, &held), Outcome::Released);
        let others = enter_later(second, &name);
        assert_kept_out(first, &name);
        assert_eq!(release(second, &others), Outcome::Released);
    }
}

#[test]
fn a_token_that_a_node_gave_is_refused_at_the_other_node_after_a_newer_one() {
    let [late, successor] = at_both(Variant::Usual, LockKind::MysqlTable);
    let name = fresh_name();
    put_into_stock_at(&nodes()[0].1, &name, 1);
    let want = LockRequest::new(&name, LEASE).waiting(WAIT_TIMEOUT);
    let lates = late.insist(&want);
    late.freeze();
    let successors = successor.lock(&want).expect("the first does not renew it");
    assert!(lates.token < successors.token, "{lates:?} {successors:?}");
    assert_eq!(successor.stock(successors.handle, &name, None, true).expect("a database"), Some(1));
    late.thaw();
    late.lost(lates.handle, WAIT_TIMEOUT);
    // Its node refuses the token or, if it has not heard of the newer one, its COMMIT.
    match late.stock(lates.handle, &name, Some(0), true) {
        Ok(sold) => assert_eq!(sold, None),
        Err(failure) => assert!(failure.message.contains("1213"), "{failure:?}"),
    }
    assert!(
        successor.stock(successors.handle, &name, Some(0), true).expect("a database").is_some()
    );
}

/// Both hold the row of the same lock, each at its node. Each sells one of its two units in that
/// transaction, and neither has committed before the other is about to. What became of both.
fn sold_beside_one_another(stocks: [&str; 2]) -> [Result<Option<i64>, Failure>; 2] {
    let name = fresh_name();
    let ways = nodes().each_ref().map(|(node, url)| {
        let proxy = Proxy::before(node.addr()).expect("a proxy");
        let url = proxy.instead_of(node.addr(), url);
        (start_at(&url, Variant::Usual, LockKind::MysqlRow), proxy)
    });
    // Otherwise the first to commit would end the other, if it has to make the row.
    assert_eq!(release(&ways[0].0, &enter(&ways[0].0, &name)), Outcome::Released);
    let there = format!("SELECT COUNT(*) FROM lock_rows WHERE name = '{name}'");
    assert_eq!(sql_at(&nodes()[1].1).number(&there), 1);
    let held = ways.each_ref().map(|(contender, _)| enter(contender, &name));
    assert_both_hold((&ways[0].0, &held[0]), (&ways[1].0, &held[1]));
    let commits = ways
        .each_ref()
        .map(|(_, proxy)| proxy.arm(Command::sql("COMMIT"), Action::HoldRequest, Times::Next(1)));
    std::thread::scope(|scope| {
        let sales = [0, 1].map(|at| {
            let ((contender, _), held) = (&ways[at], &held[at]);
            scope.spawn(move || contender.sell_inside(held.handle, stocks[at]))
        });
        eventually("both are about to commit", || commits.iter().all(|commit| commit.fired() == 1));
        commits.iter().for_each(Rule::release);
        sales.map(|sale| sale.join().expect("it does not panic"))
    })
}

/// Never both. What others write at these nodes may push aside both of them: then they try again.
fn assert_one_commits(writes_one_row: bool) {
    let url = &nodes()[0].1;
    for _ in 0..TRIES {
        let one = fresh_name();
        let other = if writes_one_row { one.clone() } else { fresh_name() };
        put_into_stock_at(url, &one, 2);
        if !writes_one_row {
            put_into_stock_at(url, &other, 2);
        }
        let sales = sold_beside_one_another([&one, &other]);
        let refused: Vec<_> = sales.iter().filter_map(|sale| sale.as_ref().err()).collect();
        assert!(refused.iter().all(|failure| failure.message.contains("1213")), "{refused:?}");
        assert!(!refused.is_empty(), "both commit: {sales:?}");
        let sold: BTreeSet<_> = [&one, &other].into();
        let left: i64 = sold.iter().map(|stock| left_in_stock(&mut sql_at(url), stock)).sum();
        let commits = 2 - i64::try_from(refused.len()).expect("two at most");
        assert_eq!(left, 2 * i64::try_from(sold.len()).expect("two at most") - commits);
        if commits == 1 {
            return;
        }
    }
    panic!("neither commits, {TRIES} times");
}

#[test]
fn of_two_transactions_that_hold_the_same_lock_on_two_nodes_one_commits() {
    for writes_one_row in [true, false] {
        assert_one_commits(writes_one_row);
    }
}

/// Two processes at one address: a proxy that leads to the first node, until the writer changes.
fn at_one_address(kind: LockKind) -> (Proxy, [Contender; 2]) {
    let (first, url) = &nodes()[0];
    let proxy = Proxy::before(first.addr()).expect("a proxy");
    let url = proxy.instead_of(first.addr(), url);
    let contenders = [(); 2].map(|()| start_at(&url, Variant::Usual, kind));
    (proxy, contenders)
}

/// As the proxy that ships does: new connections lead to the other node, and the old ones end.
fn change_writer(proxy: &Proxy) {
    proxy.lead_to(nodes()[1].0.addr());
    proxy.cut();
}

#[test]
fn a_lock_in_a_table_is_renewed_and_released_at_the_next_writer() {
    let (proxy, [holder, other]) = at_one_address(LockKind::MysqlTable);
    let name = fresh_name();
    let held = holder.lock(&LockRequest::new(&name, RENEWED_LEASE)).expect("it is free");
    assert_kept_out(&other, &name);
    change_writer(&proxy);
    assert_kept_out_for(&other, &name, RENEWED_LEASE + RENEWED_LEASE / 2);
    assert!(!holder.has_told_of_loss(held.handle), "it was renewed");
    assert_eq!(release(&holder, &held), Outcome::Released);
    let others = enter_later(&other, &name);
    assert_eq!(release(&other, &others), Outcome::Released);
}

#[test]
fn a_holder_of_a_row_commits_nothing_once_the_writer_has_changed() {
    let (proxy, [holder, other]) = at_one_address(LockKind::MysqlRow);
    let (name, url) = (fresh_name(), &nodes()[0].1);
    put_into_stock_at(url, &name, 2);
    assert_eq!(left_in_stock(&mut sql_at(&nodes()[1].1), &name), 2);
    let held = enter(&holder, &name);
    change_writer(&proxy);
    let others = enter_later(&other, &name);
    assert_eq!(other.sell_inside(others.handle, &name).expect("it commits"), Some(1));
    let late = holder.sell_inside(held.handle, &name);
    assert!(late.is_err(), "its transaction ended with its connection: {late:?}");
    assert_eq!(left_in_stock(&mut sql_at(url), &name), 1);
}
