//! Three replicas, as processes of the real binary, behind the proxy that ships.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use testbed::{Haproxy, Replica, ReplicaSpec};

use crate::support::{Place, SECRET, servers};

/// The program under test.
pub(crate) const SECKILL: &str = env!("CARGO_BIN_EXE_seckill");
const REPLICAS: usize = 3;

/// Replicas and their proxy; the bed takes them down with the other servers.
pub(crate) struct Fleet {
    pub(crate) replicas: Vec<Replica>,
    pub(crate) proxy: Haproxy,
    pub(crate) place: Place,
}

/// One fleet for all tests that need one. The first that asks starts it: all replicas at once, on
/// an empty database.
pub(crate) async fn fleet() -> &'static Fleet {
    static FLEET: OnceLock<Fleet> = OnceLock::new();
    let starting = tokio::task::spawn_blocking(|| FLEET.get_or_init(|| start("replica")));
    starting.await.expect("three replicas that start at once, and a proxy")
}

/// A fleet of one test, which takes from its replicas what other tests rely on.
pub(crate) async fn fleet_of_its_own(name: &'static str) -> Fleet {
    let starting = tokio::task::spawn_blocking(move || start(name));
    starting.await.expect("three replicas that start at once, and a proxy")
}

/// One fleet at a time: on a busy machine six replicas that start at once run out of patience.
fn start(name: &str) -> Fleet {
    static STARTING: Mutex<()> = Mutex::new(());
    let _turn = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::fresh();
    let spec = |number| replica(&place, &format!("{name}-{number}"));
    let replicas = start_together((1..=REPLICAS).map(spec));
    let addresses: Vec<_> = replicas.iter().map(Replica::addr).collect();
    let proxy = servers().bed.haproxy(&addresses).expect("HAProxy is installed");
    Fleet { replicas, proxy, place }
}

/// Replicas that start at once.
pub(crate) fn start_together(specs: impl IntoIterator<Item = ReplicaSpec>) -> Vec<Replica> {
    thread::scope(|scope| {
        let start = |spec| scope.spawn(|| servers().bed.replica(spec).expect("a replica"));
        let starting: Vec<_> = specs.into_iter().map(start).collect();
        let join = |it: ScopedJoinHandle<_>| it.join().unwrap_or_else(|why| resume_unwind(why));
        starting.into_iter().map(join).collect()
    })
}

/// Where the fleet writes its login codes.
pub(crate) fn outbox() -> PathBuf {
    servers().bed.dir().join("login-codes")
}

fn replica(place: &Place, name: &str) -> ReplicaSpec {
    ReplicaSpec::new(name, SECKILL)
        .args(["serve", "--bind", "127.0.0.1:0", "--replica-id", name, "--drain-delay-ms", "0"])
        .env("DATABASE_URL", &place.database_url)
        .env("REDIS_URL", place.service_redis_url())
        .env("REDIS_TIMEOUT_MS", place.redis_timeout_ms())
        .env("JWT_SECRET", SECRET)
        .env("LOGIN_CODE_OUTBOX", outbox().to_string_lossy())
}
