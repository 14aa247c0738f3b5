//! A failover of Redis to a replica that lags. What the master says to the replica is dropped on
//! its way until the replica is promoted; a replica that is merely paused would find it in its
//! socket. Witnesses: the bytes that the proxy swallowed, what the replica knows, and its role.

use conformance::protocol::{AcquiredLock, LockRequest};
use conformance::variant::Variant;
use conformance::{Contender, Home, Replica, Servers, fresh_name, home, setup};
use distlock::{LockKind, guarantees};
use testbed::{Redis, RedisOptions};

use crate::database::{left_in_stock, put_into_stock, with_a_database};
use crate::five::Five;
use crate::scene::{LONG, assert_both_hold, assert_kept_out, changed, enter, servers};

const FORGETS: &str = "a failover to a replica that lags forgets the lock";

fn start_at(servers: &Servers, redis: &Redis, kind: LockKind, variant: Variant) -> Contender {
    let mut setup = setup(servers, LockKind::None);
    setup.kind = kind.to_string();
    setup.addresses.redis = Some(redis.url().to_owned());
    setup.variant = variant;
    Contender::start_as(servers, &setup)
}

fn a_master() -> (Servers, Redis) {
    let servers = Servers::start();
    let master = servers.bed().redis(RedisOptions::default()).expect("Redis is installed");
    (servers, master)
}

/// The kinds that have this flaw, by their own account.
fn forgotten() -> impl Iterator<Item = LockKind> {
    LockKind::ALL.into_iter().filter(|kind| guarantees(*kind).flaws.contains(&FORGETS))
}

#[test]
fn a_failover_to_a_replica_that_lags_forgets_the_lock() {
    let in_one_redis = LockKind::ALL.into_iter().filter(|kind| home(*kind) == Home::Redis);
    assert!(forgotten().eq(in_one_redis), "each kind in one Redis has it, and no other");
    let (servers, master) = a_master();
    let replica = Replica::of(&servers, &master);
    let start = |redis: &Redis, kind| start_at(&servers, redis, kind, Variant::Usual);
    // All are there before, so that no lease is over when the last one has entered.
    let pairs: Vec<_> = forgotten().map(|kind| (kind, start(&master, kind))).collect();
    replica.cut_off();
    let held: Vec<_> = pairs
        .into_iter()
        .map(|(kind, holder)| {
            let name = fresh_name();
            let held = enter(&holder, &name);
            (kind, name, holder, held)
        })
        .collect();
    replica.succeed(&master, &held[0].1);
    for (kind, name, holder, held) in held {
        assert!(!replica.has(&name), "{kind}");
        let other = start(replica.redis(), kind);
        let others = enter(&other, &name);
        assert_both_hold((&holder, &held), (&other, &others));
    }
}

#[test]
fn a_lock_that_all_replicas_must_confirm_is_not_granted_while_one_lags() {
    let (servers, master) = a_master();
    let replica = Replica::of(&servers, &master);
    let all = Variant::Confirmed { by: 1 };
    let (kind, name) = (LockKind::Redisson, fresh_name());
    let holder = start_at(&servers, &master, kind, all);
    replica.cut_off();
    let refused = holder.lock(&LockRequest::new(&name, LONG)).expect_err("no replica confirms it");
    assert_eq!(refused.code, "backend", "{}", refused.message);
    replica.succeed(&master, &name);
    enter(&start_at(&servers, replica.redis(), kind, Variant::Usual), &name);
}

#[test]
fn a_lock_that_a_replica_has_confirmed_survives_the_failover_to_it() {
    let (servers, master) = a_master();
    let replica = Replica::of(&servers, &master);
    let all = Variant::Confirmed { by: 1 };
    let (kind, name) = (LockKind::Redisson, fresh_name());
    let holder = start_at(&servers, &master, kind, all);
    let held = holder.insist(&LockRequest::new(&name, LONG));
    assert!(replica.has(&name));
    replica.cut_off();
    master.kill().expect("it is killed");
    replica.redis().promote().expect("an answer");
    assert_kept_out(&start_at(&servers, replica.redis(), kind, Variant::Usual), &name);
    assert!(!holder.is_lost(held.handle));
}

#[test]
fn a_confirmed_majority_does_not_help_if_another_replica_is_promoted() {
    let (servers, master) = a_master();
    let [confirms, lags] = [(); 2].map(|()| Replica::of(&servers, &master));
    let majority = Variant::Confirmed { by: 1 };
    let (kind, name) = (LockKind::Redisson, fresh_name());
    let holder = start_at(&servers, &master, kind, majority);
    lags.cut_off();
    let held = holder.insist(&LockRequest::new(&name, LONG));
    assert!(confirms.has(&name));
    lags.succeed(&master, &name);
    let other = start_at(&servers, lags.redis(), kind, Variant::Usual);
    let others = enter(&other, &name);
    assert_both_hold((&holder, &held), (&other, &others));
}

#[test]
fn a_fence_refuses_the_holder_whose_lock_a_failover_has_forgotten() {
    let (redis, master) = a_master();
    let (replica, kind, name) = (Replica::of(&redis, &master), LockKind::Redisson, fresh_name());
    let mut sql = put_into_stock(&name, 1);
    let start = |redis: &Redis| {
        let setup = changed(kind, |setup| {
            with_a_database(setup);
            setup.addresses.redis = Some(redis.url().to_owned());
        });
        Contender::start_as(servers(), &setup)
    };
    let enter = |contender: &Contender| {
        let held =
            contender.lock(&LockRequest::new(&name, LONG).fenced()).expect("the lock is free");
        let seen = contender.stock(held.handle, &name, None, true).expect("a database");
        assert_eq!(seen, Some(1));
        held
    };
    let sell = |contender: &Contender, held: &AcquiredLock| {
        contender.stock(held.handle, &name, Some(0), true).expect("a database").is_some()
    };
    let holder = start(&master);
    replica.cut_off();
    let held = enter(&holder);
    replica.succeed(&master, &name);
    let other = start(replica.redis());
    let others = enter(&other);
    assert!(!holder.is_lost(held.handle), "it was warned");
    assert!(!sell(&holder, &held), "its token is the lower one");
    assert!(sell(&other, &others));
    assert_eq!(left_in_stock(&mut sql, &name), 0);
}

#[test]
fn a_lock_on_a_majority_of_independent_servers_survives_the_failover_of_one() {
    let five = Five::start(RedisOptions::default());
    let replica = Replica::of(&five.servers, &five.nodes[0]);
    let holder = five.contender();
    replica.cut_off();
    let (name, held) = five.enter_all(&holder);
    replica.succeed(&five.nodes[0], &name);
    let mut urls = five.urls();
    urls[0] = replica.redis().url().to_owned();
    assert_kept_out(&five.contender_at(urls), &name);
    assert!(!holder.is_lost(held.handle));
}
