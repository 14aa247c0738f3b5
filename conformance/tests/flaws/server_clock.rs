//! A server whose clock is set forward over the end of a lease that it counts. Witness: the time
//! that it tells.

use conformance::protocol::AcquiredLock;
use conformance::{Contender, Home, Servers, fresh_name, home, setup, with_tables};
use distlock::{LockKind, guarantees};
use testbed::{Flavor, RedisOptions};

use crate::database::Sql;
use crate::scene::{LONG, assert_both_hold, assert_kept_out, enter};

const ENDS_EARLY: &str = "a clock of the server that is set forward ends the lease early";

/// A lock of that kind, its holder, and one who knows nothing of it.
struct ExpiryScene {
    kind: LockKind,
    name: String,
    holder: Contender,
    held: AcquiredLock,
    other: Contender,
}

impl ExpiryScene {
    fn at(servers: &Servers, kind: LockKind, url: &str) -> Self {
        let mut setup = setup(servers, LockKind::None);
        setup.kind = kind.to_string();
        setup.addresses.redis = (home(kind) == Home::Redis).then(|| url.to_owned());
        setup.addresses.mysql = (home(kind) == Home::Database).then(|| url.to_owned());
        let [holder, other] = [(); 2].map(|()| Contender::start_as(servers, &setup));
        let name = fresh_name();
        let held = enter(&holder, &name);
        Self { kind, name, holder, held, other }
    }

    fn assert_both_hold(&self) {
        let others = enter(&self.other, &self.name);
        assert_both_hold((&self.holder, &self.held), (&self.other, &others));
    }

    fn assert_kept_out(&self) {
        assert_kept_out(&self.other, &self.name);
        assert!(!self.holder.is_lost(self.held.handle), "{}", self.kind);
    }
}

/// The kinds that have this flaw, by their own account, and live there.
fn ending_early(at: Home) -> impl Iterator<Item = LockKind> {
    let has = |kind: &LockKind| guarantees(*kind).flaws.contains(&ENDS_EARLY);
    LockKind::ALL.into_iter().filter(has).filter(move |kind| home(*kind) == at)
}

fn ahead_ms() -> i64 {
    i64::try_from(LONG.as_millis() * 2).expect("minutes")
}

/// Checks locks of those kinds in a database whose clock has jumped since they were taken.
fn in_a_database_that_jumps(kinds: impl Iterator<Item = LockKind>, check: fn(&ExpiryScene)) {
    let servers = Servers::start();
    let database = servers.bed().database_with_clock(Flavor::Any).expect("a database server");
    let url = with_tables(&database);
    let meetings: Vec<_> = kinds.map(|kind| ExpiryScene::at(&servers, kind, &url)).collect();
    let mut sql = Sql::open_at(&url);
    let mut ms = || sql.number("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)");
    let before = ms();
    database.jump_clock(ahead_ms()).expect("a clock");
    assert!(ms() >= before + ahead_ms());
    meetings.iter().for_each(check);
}

#[test]
fn a_redis_whose_clock_is_set_forward_admits_a_second_holder_beside_a_living_one() {
    // What has no lease in Redis trusts the clocks of the clients instead.
    let lease = |kind: &LockKind| home(*kind) == Home::Redis && *kind != LockKind::GetsetTimestamp;
    assert!(ending_early(Home::Redis).eq(LockKind::ALL.into_iter().filter(lease)));
    let servers = Servers::start();
    let options = RedisOptions { clock: true, ..RedisOptions::default() };
    let redis = servers.bed().redis(options).expect("Redis is installed");
    let meetings: Vec<_> = ending_early(Home::Redis)
        .map(|kind| ExpiryScene::at(&servers, kind, redis.url()))
        .collect();
    let seconds = || -> i64 {
        let time = redis.command(&["TIME"]).expect("an answer");
        time.lines().next().and_then(|line| line.parse().ok()).expect("seconds")
    };
    let before = seconds();
    redis.jump_clock(ahead_ms()).expect("a clock");
    assert!(seconds() >= before + ahead_ms() / 1000);
    meetings.iter().for_each(ExpiryScene::assert_both_hold);
}

#[test]
fn a_database_whose_clock_is_set_forward_admits_a_second_holder_beside_a_living_one() {
    assert!(ending_early(Home::Database).eq([LockKind::MysqlTable]));
    in_a_database_that_jumps(ending_early(Home::Database), ExpiryScene::assert_both_hold);
}

#[test]
fn a_clock_that_is_set_forward_ends_no_transaction_and_no_session() {
    let kinds = [LockKind::MysqlRow, LockKind::MysqlNamed];
    in_a_database_that_jumps(kinds.into_iter(), ExpiryScene::assert_kept_out);
}
