//! A failover of a database to a replica that lags. What the primary says to the replica is dropped
//! on its way until the replica is promoted. Witnesses: the bytes that the proxy swallowed, and
//! what the replica knows.

use conformance::protocol::{AcquiredLock, Outcome};
use conformance::{Contender, Servers, fresh_name, setup, with_tables};
use distlock::LockKind;
use testbed::{Database, Direction, Proxy};

use crate::database::Sql;
use crate::scene::{assert_both_hold, enter, eventually, release};

struct Pair {
    servers: Servers,
    primary: Database,
    replica: Database,
    link: Proxy,
    /// Has been locked and released, and the replica knows that.
    name: String,
}

impl Pair {
    fn start() -> Self {
        let servers = Servers::start();
        let [primary, replica] =
            [(); 2].map(|()| servers.bed().database_with_log().expect("a database is installed"));
        let link = Proxy::before(primary.addr()).expect("a proxy");
        replica.follow(&primary, link.addr()).expect("both are fresh");
        let at_primary = with_tables(&primary);
        eventually("the replica has the tables", || {
            let there = "SELECT COUNT(*) FROM information_schema.tables \
                         WHERE table_schema = 'locks' AND table_name = 'lock_holders'";
            Sql::open_at(&replica.url("mysql")).number(there) == 1
        });
        let pair = Self { servers, primary, replica, link, name: fresh_name() };
        let first = pair.start_at(&at_primary, LockKind::MysqlTable);
        assert_eq!(release(&first, &enter(&first, &pair.name)), Outcome::Released);
        eventually("the replica has seen the release", || pair.replica_has("owner IS NULL"));
        pair
    }

    fn start_at(&self, url: &str, kind: LockKind) -> Contender {
        let mut setup = setup(&self.servers, LockKind::None);
        setup.kind = kind.to_string();
        setup.addresses.mysql = Some(url.to_owned());
        Contender::start_as(&self.servers, &setup)
    }

    fn at(&self, server: &Database, kind: LockKind) -> Contender {
        self.start_at(&server.url("locks"), kind)
    }

    fn replica_has(&self, condition: &str) -> bool {
        let name = &self.name;
        let asked =
            format!("SELECT COUNT(*) FROM lock_holders WHERE name = '{name}' AND {condition}");
        Sql::open_at(&self.replica.url("locks")).number(&asked) == 1
    }

    /// From now on the replica hears nothing.
    fn cut_off(&self) {
        self.link.set_swallowing(Direction::ToClient, true);
    }

    fn fail_over(&self) {
        eventually("it was told", || self.link.counts().swallowed_to_client > 0);
        self.primary.kill().expect("it is killed");
        self.replica.promote().expect("it follows a primary");
        assert!(self.replica_has("owner IS NULL"), "it does not lag");
    }
}

/// The holder of a lock of that kind when its database fails over, and the holder at the replica.
fn failed_over(pair: &Pair, kind: LockKind) -> [(Contender, AcquiredLock); 2] {
    let holder = pair.at(&pair.primary, kind);
    pair.cut_off();
    let held = enter(&holder, &pair.name);
    pair.fail_over();
    let other = pair.at(&pair.replica, kind);
    let others = enter(&other, &pair.name);
    [(holder, held), (other, others)]
}

#[test]
fn a_failover_to_a_database_that_lags_forgets_the_lock_and_gives_its_token_out_again() {
    let pair = Pair::start();
    let [(holder, held), (other, others)] = failed_over(&pair, LockKind::MysqlTable);
    assert!(held.token.is_some());
    assert_eq!(others.token, held.token);
    assert_both_hold((&holder, &held), (&other, &others));
}

#[test]
fn a_transaction_that_is_the_lock_does_not_outlive_the_database_that_fails_over() {
    let pair = Pair::start();
    let [(holder, held), (other, others)] = failed_over(&pair, LockKind::MysqlRow);
    // COMMIT has nothing to commit at: whatever the holder has written is as if it had never been.
    let commit = holder.release(held.handle);
    assert!(!matches!(commit, Ok(Outcome::Released)), "{commit:?}");
    assert_eq!(release(&other, &others), Outcome::Released);
}
