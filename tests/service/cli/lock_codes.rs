//! `seckill lock run` when the command does not run: why, and how a script tells.

use testbed::{Redis, RedisOptions};

use super::lock_run::{Bench, LUA};
use super::{CommandOutput, run};
use crate::support::{Place, servers};

/// `seckill lock run` of a command that does nothing.
fn with(flags: &[&str], env: &[(&str, &str)]) -> CommandOutput {
    run(&[&["lock", "run", "--name", "a"], flags, &["--", "true"]].concat(), env)
}

const REDIS: [(&str, &str); 1] = [("REDIS_URL", "redis://127.0.0.1:1")];

#[test]
fn an_unreachable_server_is_distinguished_from_a_held_lock() {
    let bench = Bench::new();
    let nobody = ["--redis-url", "redis://:hush@127.0.0.1:1/0"];
    let ended = bench.run(&[&LUA[..], &nobody].concat(), "touch entered");
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(ended.stderr.contains("cannot connect to --redis-url"), "{ended:?}");
    assert!(!ended.stderr.contains("hush"), "{ended:?}");
    assert!(!bench.path("entered").exists());
    let nobody = "mysql://u:hush@127.0.0.1:1/d";
    let ended = with(&["--kind", "mysql-table", "--database-url", nobody], &REDIS);
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(!ended.stderr.contains("hush"), "{ended:?}");
}

/// Those where trying again does not help.
#[test]
fn an_unusable_server_is_distinguished_from_one_that_fails() {
    let bench = Bench::new();
    bench.redis::<()>(&["RPUSH", &bench.name, "a queue"]);
    let ended = bench.run(&["--kind", "redisson"], "touch entered");
    assert_eq!(ended.code, Some(78), "{ended:?}");
    assert!(ended.stderr.contains("a lock of another kind"), "{ended:?}");
    let redis = may_evict();
    let ended = bench.run(&[&LUA[..], &["--redis-url", redis.url()]].concat(), "touch entered");
    assert_eq!(ended.code, Some(78), "{ended:?}");
    assert!(ended.stderr.contains("--redis-url (--allow-eviction ignores it)"), "{ended:?}");
    assert!(!bench.path("entered").exists());
}

/// A wrong password, and a database that is not there, are mended by no second try.
#[test]
fn a_server_that_denies_access_is_distinguished_from_one_that_fails() {
    let place = Place::fresh();
    let wrong_password = place.redis_url.replace("redis://:", "redis://:x");
    let (_, host) = place.redis_url.split_once('@').expect("a login");
    let (address, _) = host.split_once('/').expect("a database");
    let no_password = [format!("redis://{host}"), format!("redis://{address}/0")];
    for url in [wrong_password.as_str(), &no_password[0], &no_password[1]] {
        let ended = with(&["--redis-url", url], &[]);
        assert_eq!(ended.code, Some(78), "{ended:?}");
        assert!(ended.stderr.contains("--redis-url: redis denies access: "), "{ended:?}");
        let ended = with(&["--kind", "multi", "--redlock-urls", url], &[]);
        assert_eq!(ended.code, Some(78), "{ended:?}");
    }
    // Of MySQL's own plugin the whole password may be sent over TLS only.
    let (left, _) = place.database_url.rsplit_once('/').expect("a database");
    let wrong_password = left.replace("seckill:", "seckill:x") + "/shop";
    let no_database = format!("{left}/no_such_shop");
    for (url, why) in [(wrong_password, "Access denied"), (no_database, "no_such_shop")] {
        for kind in ["mysql-named", "mysql-table", "mysql-row"] {
            let ended = with(&["--kind", kind, "--database-url", &url], &[]);
            assert_eq!(ended.code, Some(78), "{kind}: {ended:?}");
            let said = &ended.stderr;
            assert!(said.contains("--database-url: database denies access: "), "{said}");
            assert!(said.contains(why) && !said.contains("in time"), "{kind}: {said}");
            assert!(!said.contains(&super::password(&place.database_url)), "{said}");
        }
    }
}

fn may_evict() -> Redis {
    let redis = servers().bed.redis(RedisOptions::default()).expect("a Redis of one's own");
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).expect("it may evict");
    redis
}

#[test]
fn the_setting_in_use_is_blamed_and_not_the_one_that_it_overrides() {
    let (bad, place) = ("http://:hush@127.0.0.1:1/0", Place::fresh());
    let fine = [("REDIS_URL", place.redis_url.as_str())];
    with(&["--redis-url", bad], &fine).refused(None, "seckill: --redis-url is not usable: ");
    with(&[], &[("REDIS_URL", bad)]).refused(None, "seckill: REDIS_URL is not usable: ");
    let redlock = ["--kind", "multi", "--redlock-urls", bad];
    with(&redlock, &fine).refused(None, "seckill: --redlock-urls is not usable: ");
    with(&redlock[..2], &[("REDLOCK_URLS", bad)])
        .refused(None, "seckill: REDLOCK_URLS is not usable: ");
    for bad in ["me:hush@etcd", "me:hush@https://127.0.0.1:1", "https://me:hush@127.0.0.1:1"] {
        let etcd = ["--kind", "etcd", "--etcd-endpoints", bad];
        for (flags, variables, name) in
            [(&etcd[..], None, "--etcd-endpoints"), (&etcd[..2], Some(bad), "ETCD_ENDPOINTS")]
        {
            let variables: Vec<_> =
                variables.map(|bad| ("ETCD_ENDPOINTS", bad)).into_iter().collect();
            let ended = with(flags, &variables);
            let said = &ended.stderr;
            assert!(
                said.contains(&format!("{name} is not usable: etcd endpoints: must be")),
                "{said}"
            );
            assert!(ended.code == Some(2) && !said.contains("hush"), "{ended:?}");
        }
    }
    let table = ["--kind", "mysql-table", "--database-url", "nonsense"];
    with(&table, &fine).refused(None, "seckill: --database-url is not usable: ");
    with(&["--redis-url", &place.redis_url], &[("REDIS_URL", bad)]).fine();
    let keeper = ["--kind", "zookeeper", "--zookeeper-url", "127.0.0.1:1"];
    let ended = with(&keeper, &[("ZOOKEEPER_URL", "127.0.0.1:2")]);
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(ended.stderr.contains("cannot connect to --zookeeper-url"), "{ended:?}");
}

#[test]
fn a_senseless_value_is_one_sentence() {
    let cases: [(&[&str], &str); 22] = [
        (&["--kind", "none"], "the lock none keeps no other process out"),
        (&["--kind", "local"], "the lock local keeps no other process out"),
        (&["--kind", "mutex"], "[possible values: setnx-expire, set-nx"),
        (&["--kind", "mysql-table"], "needs --database-url (DATABASE_URL)"),
        (&["--kind", "redlock"], "needs --redlock-urls (REDLOCK_URLS)"),
        (&["--kind", "etcd"], "needs --etcd-endpoints (ETCD_ENDPOINTS)"),
        (&["--kind", "nats"], "needs --nats-url (NATS_URL)"),
        (&["--nats-bucket", "a.b"], "'--nats-bucket <NATS_BUCKET>': NATS bucket: must have 1 to"),
        (&["--kind", "zookeeper"], "needs --zookeeper-url (ZOOKEEPER_URL)"),
        (&["--kind", "lua-release", "--token"], "lua-release has none"),
        (&["--kind", "redisson", "--token"], "--token of redisson needs --database-url"),
        (
            &["--wait", "10"],
            "for '--wait <WAIT>': must be 0s to 1day, with the unit, such as 500ms",
        ),
        (&["--grace", "soon"], "for '--grace <GRACE>': must be 0s to 12h, with the unit"),
        (&["--wait", "2days"], "for '--wait <WAIT>': must be 0s to 1day"),
        (&["--lease", "1ms"], "for '--lease <LEASE>': must be 100ms to 1day"),
        (&["--lease", "1s", "--grace", "600ms"], "--grace must be at most half of --lease"),
        (&["--once-per", "0s"], "for '--once-per <WINDOW>': must be 1s to 1year, with the unit"),
        (&["--once-per", "20"], "for '--once-per <WINDOW>': must be 1s to 1year, with the unit"),
        (&["--once-per", "2years"], "for '--once-per <WINDOW>': must be 1s to 1year"),
        (&["--at-least-for", "0s"], "for '--at-least-for <TIME>': must be 100ms to 1day"),
        (
            &["--skip-if-held", "--wait", "1s"],
            "'--skip-if-held' cannot be used with '--wait <WAIT>'",
        ),
        (&["--skip-exit-code", "256"], "256 is not in 0..=255"),
    ];
    for (flags, why) in cases {
        with(flags, &REDIS).refused(None, why);
    }
    with(&[], &[]).refused(None, "needs --redis-url (REDIS_URL)");
    run(&["lock", "run", "--name", "a"], &REDIS).refused(None, "<COMMAND>");
    run(&["lock", "run", "--name", "a\nb", "--", "true"], &REDIS).refused(None, "control");
    let mysql_row = ["--kind", "mysql-row", "--database-url", "mysql://u:p@127.0.0.1:1/d"];
    with(&[&mysql_row[..], &["--token"]].concat(), &REDIS).refused(None, "ends with the lock");
    with(&["--redis-ca-file", "/no/such/file"], &REDIS).refused(None, "cannot read /no/such/file");
}

#[test]
fn a_value_that_begins_with_a_minus_is_refused_as_that_of_its_flag() {
    for (flag, value, why) in [
        ("--wait", "-1", "must be 0s to 1day"),
        ("--wait", "-1s", "must be 0s to 1day"),
        ("--lease", "-30s", "must be 100ms to 1day"),
        ("--grace", "-1", "must be 0s to 12h"),
        ("--lock-pool", "-1", "-1 is not in 2..=1000"),
    ] {
        let ended = with(&[flag, value], &REDIS);
        assert!(ended.stderr.contains(&format!("'{value}' for '{flag} <")), "{ended:?}");
        ended.refused(None, why);
    }
}

/// The help and the documentation say the same, and the help names no kind that is refused.
#[test]
fn every_exit_code_and_every_kind_is_in_the_help() {
    let help = run(&["lock", "run", "--help"], &[]).fine();
    let page = include_str!("../../../docs/locks/shell.md");
    let (_, codes) = help.split_once("Exit codes:").expect("the codes");
    for code in [2, 69, 71, 75, 76, 78, 79, 126, 127] {
        assert!(codes.contains(&format!("\n  {code:<5}")), "{code} is not in {codes}");
        assert!(page.contains(&format!("\n| {code} |")), "{code} is not in docs/locks/shell.md");
    }
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let kinds = words.split_once("[possible values: ").and_then(|(_, rest)| rest.split_once(']'));
    let kinds: Vec<&str> = kinds.expect("the kinds").0.split([',', ' ']).collect();
    for kind in distlock::LockKind::ALL {
        let is_listed = kinds.contains(&kind.as_str());
        assert_eq!(is_listed, distlock::guarantees(kind).is_on_a_server(), "{kind}: {kinds:?}");
    }
}
