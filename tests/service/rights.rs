//! Rights of the service's user of Redis: a missing one refuses the start, and shows in readiness.
//! So does a Redis that refuses writes, which does not refuse the start.

use std::fs;
use std::path::Path;

use testbed::{Bed, RedisOptions};

use crate::breakable::{Breakable, blocking, readiness, until_ready};
use crate::redis_side::RedisSide;
use crate::support::{Place, Service, app, eventually, least_rights, servers};

/// A user of the shared Redis with the least rights and a place that logs in as that user.
struct User {
    name: String,
    place: Place,
}

impl User {
    async fn create(name: &str) -> Self {
        let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
        let user = Self { name: name.to_owned(), place };
        user.set("reset on nopass");
        user.set(&least_rights());
        let redis_url = user.place.redis_url.replace("://:", &format!("://{name}:"));
        Self { place: Place { redis_url, ..user.place }, ..user }
    }

    fn set(&self, rules: &str) {
        let words: Vec<_> =
            ["ACL", "SETUSER", &self.name].into_iter().chain(rules.split(' ')).collect();
        tokio::task::block_in_place(|| servers().redis.command(&words)).expect("the rules");
    }
}

/// Keys of any database that the question after rights would have left.
fn probes(place: &Place) -> usize {
    let (_, database) = place.redis_url.rsplit_once('/').expect("a database");
    let script = "redis.call('SELECT', ARGV[1]) return #redis.call('KEYS', '*rights-probe*')";
    let left = servers().redis.command(&["EVAL", script, "0", database]).expect("an answer");
    left.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_a_right_is_refused_with_a_sentence_that_names_it() {
    let user = User::create("starts").await;
    let dianping = ["--api", "hm-dianping", "--dianping-counter", "irc:order:yyyyMMdd"];
    let queued = ["--mode", "queued", "--writer", "grouped"];
    for (taken, missing, flags) in [
        ("-eval", "+eval", &[][..]),
        ("-script|load", "+script|load", &[]),
        ("-multi", "+multi", &[]),
        ("-exec", "+exec", &[]),
        ("-publish", "+publish", &[]),
        ("-subscribe", "+subscribe", &[]),
        ("-hincrby -pexpire", "+hincrby +pexpire", &[]),
        ("resetchannels", "&redisson_lock__channel:*", &[]),
        ("resetkeys ~lock:* ~redisson_* ~icr:* ~limit:*", "~login:*", &[]),
        ("resetkeys ~redisson_* ~icr:* ~limit:* ~login:*", "~lock:*", &[]),
        (
            "resetkeys ~lock:* ~redisson_lock_latch:* ~redisson_unlock* ~icr:* ~limit:* ~login:*",
            "~redisson_lock__channel:*",
            &[],
        ),
        ("-zadd", "+zadd", &["--lock", "fair"]),
        ("-setnx", "+setnx", &["--lock", "setnx-expire"]),
        ("-set", "+set", &["--limit-orders-user", "5"]),
        ("+ping", "~irc:order:*", &dianping),
        ("-xautoclaim -xgroup|create", "+xautoclaim +xgroup|create", &queued),
    ] {
        user.set(taken);
        let refused = app(&user.place, flags).await.err();
        let refused = refused.unwrap_or_else(|| panic!("it starts with {taken}"));
        let sentence = format!("{refused:#}");
        assert!(sentence.contains(&format!("lacks these rights: {missing}")), "{sentence}");
        user.set("reset on nopass");
        user.set(&least_rights());
    }
    // What a configuration does not use is not asked for.
    user.set("-xadd -zadd -wait");
    Service::start_at(user.place.clone(), &[]).await.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_not_ready_while_a_right_is_away_and_ready_again_when_it_is_back() {
    let user = User::create("runs").await;
    let service = Service::start_at(user.place.clone(), &[]).await;
    let voucher = service.voucher(10).await;
    service.buy(&voucher, 1).await.expect(201);
    for (taken, back, missing) in [
        ("-evalsha", "+evalsha", "+evalsha"),
        ("-multi", "+multi", "+multi"),
        ("resetkeys ~icr:* ~limit:* ~login:* ~redisson_*", "~lock:*", "~lock:*"),
    ] {
        user.set(taken);
        until_ready(&service, Some(&format!("lacks these rights: {missing}"))).await;
        user.set(back);
        until_ready(&service, None).await;
    }
    service.buy(&voucher, 2).await.expect(201);
    RedisSide::connect(&user.place.redis_url).await.until_given_back(2).await;
    assert_eq!(probes(&user.place), 0);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_not_ready_while_redis_refuses_writes_and_ready_again_afterwards() {
    let servers = Breakable::start();
    let service = Service::start_at(servers.place(), &[]).await;
    let voucher = service.voucher(20).await;
    service.buy(&voucher, 1).await.expect(201);
    let command = |words: &[&str]| blocking(|| servers.redis.command(words));
    // A folder has the name of the file, so that each save fails.
    let data = command(&["CONFIG", "GET", "dir"]);
    fs::create_dir(Path::new(data.lines().last().expect("a folder")).join("dump.rdb"))
        .expect("a folder");
    command(&["BGSAVE"]);
    eventually("a save has failed", async || {
        command(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err")
    })
    .await;
    let cases: [(&[&str], &[&str], &str); 4] = [
        (&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"], "OOM"),
        (
            &["CONFIG", "SET", "min-replicas-to-write", "1"],
            &["CONFIG", "SET", "min-replicas-to-write", "0"],
            "NOREPLICAS",
        ),
        // A master that does not exist: it keeps its data.
        (&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"], "READONLY"),
        // It answers PING with the same error.
        (&["CONFIG", "SET", "save", "3600 1"], &["CONFIG", "SET", "save", ""], "MISCONF"),
    ];
    for (user, (breaks, heals, code)) in (2..).zip(cases) {
        command(breaks);
        until_ready(&service, Some(&format!("Redis refuses writes: {code}"))).await;
        let (_, reasons) = readiness(&service.url).await;
        assert!(!reasons.contains("lacks these rights"), "{reasons}");
        assert!(!reasons.contains("does not answer"), "{reasons}");
        let refused = service.buy(&voucher, user).await;
        assert_eq!((refused.status.as_u16(), &refused.body["executed"]), (503, &false.into()));
        // A start is not refused: Redis may write again at any moment.
        let starts = Service::start_at(servers.place(), &[]).await;
        assert!(!readiness(&starts.url).await.0, "{code}");
        command(heals);
        until_ready(&service, None).await;
        until_ready(&starts, None).await;
        service.buy(&voucher, user).await.expect(201);
        starts.stop().await;
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_at_a_redis_without_a_command_is_refused_with_a_sentence_that_names_it() {
    let servers = Breakable::start();
    let without_eval = ["rename-command EVAL \"\"", "rename-command MULTI \"\""];
    for (renamed, missing) in without_eval.into_iter().zip(["+eval", "+multi"]) {
        let options = RedisOptions { extra: vec![renamed.to_owned()], ..RedisOptions::default() };
        let bed = blocking(Bed::start);
        let redis = blocking(|| bed.redis(options));
        let place = Place { redis_url: redis.url().to_owned(), ..servers.place() };
        let refused = app(&place, &[]).await.err().expect("it does not start");
        let sentence = format!("{refused:#}");
        assert!(sentence.contains(&format!("lacks these rights: {missing}")), "{sentence}");
    }
}
