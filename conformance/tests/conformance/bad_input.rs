//! What is refused before any server is asked.

use std::time::Duration;

use conformance::{Addresses, Home, Servers};
use distlock::{Backends, Fencing, Lease, LockError, LockKind, LockOptions, Locks, RenewalKind};
use tokio::task::block_in_place;

use crate::arena::{Arena, Check, LONG, fresh_name, of_all};

pub(crate) const CHECKS: &[Check] = &[Check {
    name: "a_bad_request_is_refused_before_a_server_is_asked",
    asked: of_all,
    run: |arena| arena.run(async || bad_requests_are_refused(arena).await),
}];

async fn backends_of_dead_servers(arena: &Arena) -> Backends {
    let mut addresses = Addresses::nowhere();
    if !arena.lives_on(Home::ZooKeeper) {
        return addresses.connect().await.expect("connecting asks no server");
    }
    // There is no connection without a server, so it has to die afterwards.
    let servers = block_in_place(Servers::start);
    addresses.zookeeper = block_in_place(|| servers.addresses(LockKind::Zookeeper)).zookeeper;
    let backends = addresses.connect().await.expect("a session");
    block_in_place(|| drop(servers));
    backends
}

async fn bad_requests_are_refused(arena: &Arena) {
    let backends = backends_of_dead_servers(arena).await;
    let locks = Locks::new(arena.locker(&backends).expect("a mechanism"));
    let (day, ms) = (Duration::from_hours(24), Duration::from_millis(1));
    let options = |wait, lease| LockOptions::new(wait, arena.promise.lease(lease));
    let mut bad = vec![
        ("lease", options(Duration::ZERO, Duration::ZERO)),
        ("lease", options(Duration::ZERO, ms * 9)),
        ("lease", options(Duration::ZERO, day + ms)),
        ("lease", options(Duration::ZERO, Duration::MAX)),
        ("wait", options(day + ms, LONG)),
        ("wait", options(Duration::MAX, LONG)),
        ("max_hold", LockOptions { max_hold: Some(ms * 9), ..options(Duration::ZERO, LONG) }),
        ("max_hold", LockOptions { max_hold: Some(day + ms), ..options(Duration::ZERO, LONG) }),
        (
            "max_hold",
            LockOptions { max_hold: Some(Duration::MAX), ..options(Duration::ZERO, LONG) },
        ),
    ];
    match arena.promise.renewal {
        RenewalKind::No => {
            bad.push(("lease", LockOptions::new(Duration::ZERO, Lease::Renewed(LONG))));
        }
        RenewalKind::Heartbeat => {
            bad.push(("lease", LockOptions::new(Duration::ZERO, Lease::Fixed(LONG))));
        }
        RenewalKind::Yes | RenewalKind::NotApplicable => {}
    }
    for (field, options) in bad {
        match locks.lock(&fresh_name(), &options).await.err() {
            Some(LockError::BadRequest { field: named, .. }) => assert_eq!(named, field),
            other => panic!("{options:?}: {other:?}"),
        }
    }
    if arena.promise.fencing != Fencing::Yes {
        let unfenced = options(Duration::ZERO, LONG);
        let refused = locks.lock(&fresh_name(), &unfenced.fenced()).await.err();
        assert!(matches!(refused, Some(LockError::Unsupported(_))), "{refused:?}");
    }
    // There really is no server to ask.
    let outcome = locks.lock(&fresh_name(), &options(Duration::ZERO, LONG)).await;
    match outcome.err() {
        Some(LockError::Backend(_) | LockError::NoConnection(_)) => {
            assert!(arena.promise.is_on_a_server());
        }
        None => assert!(!arena.promise.is_on_a_server()),
        Some(error) => panic!("{error}"),
    }
}
