//! What a lock costs beside the two bare commands it is made of: compare the two figures of one
//! run, never with another day's.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use distlock::{
    Backends, Lease, LockKind, LockName, LockOptions, Locks, RedisConnection, RedisServer, locker,
};
use redis::Script;
use redis::aio::ConnectionManagerConfig;
use testbed::{Bed, RedisOptions};
use tokio::runtime::Runtime;

const RELEASE: &str = include_str!("../lua/release_if_owner.lua");

async fn bare_pair(mut connection: RedisConnection, release: &Script) {
    let mut set = redis::cmd("SET");
    set.arg("bare").arg("owner").arg("NX").arg("PX").arg(10_000);
    let granted: Option<String> = set.query_async(&mut connection).await.expect("SET");
    assert!(granted.is_some(), "nobody else asks for this lock");
    let freed: i64 =
        release.key("bare").arg("owner").invoke_async(&mut connection).await.expect("release");
    assert_eq!(freed, 1);
}

async fn lock_and_release(locks: &Locks, name: &LockName, options: &LockOptions) {
    let guard = locks.lock(name, options).await.expect("the lock");
    guard.release().await.expect("the release");
}

fn one_task(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let bed = Bed::start().expect("a bed");
    let redis = bed.redis(RedisOptions::default()).expect("Redis is installed");
    let connection =
        runtime.block_on(RedisConnection::now(redis.url(), ConnectionManagerConfig::new()));
    let connection = connection.expect("a connection");
    let redis_server = RedisServer::new(connection.clone());
    let backends = Backends { redis: Some(redis_server), ..Backends::default() };
    let name = LockName::new("guarded").expect("a name");
    let options = LockOptions::new(Duration::ZERO, Lease::Fixed(Duration::from_secs(10)));
    let release = Script::new(RELEASE);

    let mut group = criterion.benchmark_group("lock and release, one task");
    group.bench_function("bare SET NX PX and script", |bencher| {
        bencher.to_async(&runtime).iter(|| bare_pair(connection.clone(), &release));
    });
    for kind in [LockKind::Local, LockKind::LuaRelease] {
        let locks =
            runtime.block_on(async { locker(kind, &backends).map(Locks::new) }).expect("a locker");
        group.bench_function(kind.as_str(), |bencher| {
            bencher.to_async(&runtime).iter(|| lock_and_release(&locks, &name, &options));
        });
    }
    group.finish();
}

criterion_group!(benches, one_task);
criterion_main!(benches);
