//! When `serve` refuses to start: one sentence, no secret, exit code 2.

use std::net::TcpListener;
use std::thread;

use testbed::{RedisOptions, ReplicaSpec};

use super::{CommandOutput, env, run};
use crate::fleet::SECKILL;
use crate::support::{Place, SECRET, servers};

const ANY_PORT: [&str; 3] = ["serve", "--bind", "127.0.0.1:0"];

/// `serve` at that place, with more flags.
fn serve(place: &Place, flags: &[&str]) -> CommandOutput {
    run(&[&ANY_PORT, flags].concat(), &env(place))
}

/// A place whose servers are never asked.
fn nowhere() -> Place {
    Place {
        database_url: "mysql://seckill:hush-hush-1@127.0.0.1:1/shop".into(),
        redis_url: "redis://:hush-hush-2@127.0.0.1:1/0".into(),
    }
}

#[test]
fn a_missing_or_weak_secret_is_refused_before_anything_is_touched() {
    let place = nowhere();
    let [database, redis, _] = env(&place);
    run(&ANY_PORT, &[database, redis]).refused(Some(&place), "JWT_SECRET is missing");
    let nearly = &SECRET[..31];
    for weak in ["", "secret", "0123456789", nearly, &"a".repeat(64), &"abcdefgh".repeat(8)] {
        let env = [database, redis, ("JWT_SECRET", weak)];
        run(&ANY_PORT, &env).refused(Some(&place), "JWT_SECRET must have at least 32 bytes");
    }
    let dev = [&ANY_PORT[..], &["--dev"]].concat();
    run(&dev, &[database, redis, ("JWT_SECRET", "weak")]).refused(Some(&place), "32 bytes");
}

#[test]
fn traces_are_refused_by_a_program_that_cannot_send_them_and_at_bad_addresses() {
    let place = nowhere();
    let built = "--otlp-endpoint needs a program that was built with `--features otlp`";
    serve(&place, &["--otlp-endpoint", "http://127.0.0.1:4318"]).refused(Some(&place), built);
    for (flags, why) in [
        (["--otlp-endpoint", "https://127.0.0.1:4318"], "must begin with http://"),
        (["--otlp-endpoint", "http:///v1"], "has no host"),
        (["--trace-ratio", "1.5"], "must be a number from 0 to 1"),
    ] {
        serve(&place, &flags).refused(Some(&place), why);
    }
}

#[test]
fn switches_for_development_are_refused_on_an_address_that_others_reach() {
    let place = nowhere();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:8080", "[2001:db8::1]:8080"] {
        for flag in ["--dev", "--lab"] {
            let ended = run(&["serve", "--bind", address, flag], &env(&place));
            ended.refused(Some(&place), &format!("{flag} needs a loopback address"));
        }
    }
    let by_environment = [&env(&place)[..], &[("DEV", "true"), ("BIND", "0.0.0.0:0")]].concat();
    run(&["serve"], &by_environment).refused(Some(&place), "--dev needs a loopback address");
}

#[test]
fn switches_that_break_things_are_refused_outside_of_the_laboratory() {
    let place = nowhere();
    let cases: [(&[&str], &str); 12] = [
        (&["--guards", "off"], "--guards off"),
        (&["--failpoints", "sale-committed=panic"], "--failpoints"),
        (&["--work-ms", "1"], "--work-ms"),
        (&["--on-lost", "ignore"], "--on-lost ignore"),
        (&["--fenced"], "--fenced"),
        (&["--lock-order", "inside"], "--lock-order inside"),
        (&["--lock-order", "nested"], "--lock-order nested"),
        (&["--lock-order", "read-first"], "--lock-order read-first"),
        (&["--inject-bug", "lying-audit"], "--inject-bug"),
        (&["--inject-bug", "release-before-commit"], "--inject-bug"),
        (&["--inject-bug", "no-stock-condition"], "--inject-bug"),
        (&["--inject-bug-control", "lying-audit"], "--inject-bug-control"),
    ];
    for (flags, why) in cases {
        let why = format!("{why} is for the laboratory and needs --lab");
        serve(&place, flags).refused(Some(&place), &why);
        serve(&place, &[flags, &["--dev"]].concat()).refused(Some(&place), &why);
    }
    let by_environment = [&env(&place)[..], &[("GUARDS", "off")]].concat();
    run(&ANY_PORT, &by_environment).refused(Some(&place), "--guards off");
}

#[test]
fn locks_without_their_servers_and_combinations_without_sense_are_refused() {
    let place = nowhere();
    let queued = ["--mode", "queued", "--writer", "grouped"];
    let queued = |flags: &[&'static str]| [&queued[..], flags].concat();
    let cases: [(&[&str], &str); 35] = [
        (&["--lock-replication", "most"], "must be none, N, majority:N or all:N"),
        (&["--lock-replication", "all:0"], "must be none, N, majority:N or all:N"),
        (
            &["--lock", "fair", "--lock-replication", "1"],
            "--lock-replication (LOCK_REPLICATION) is for the lock redisson, not for fair",
        ),
        (&["--lock", "etcd"], "the lock etcd needs --etcd-endpoints (ETCD_ENDPOINTS)"),
        (&["--lock", "nats"], "the lock nats needs --nats-url (NATS_URL)"),
        (&["--lock", "zookeeper"], "the lock zookeeper needs --zookeeper-url (ZOOKEEPER_URL)"),
        (&["--lock", "mysql-row", "--lab", "--lock-order", "inside"], "--lock-order inside makes"),
        (&["--lock", "mysql-row", "--lab", "--fenced"], "--fenced is not for mysql-row"),
        (&["--lock", "mysql-row", "--writer", "grouped"], "makes no sense with that lock"),
        (&["--lab", "--guards", "off", "--writer", "grouped"], "naive code writes one at a time"),
        (&["--lab", "--lock-order", "inside", "--writer", "grouped"], "have a lock each"),
        (&["--lab", "--fenced", "--writer", "grouped"], "no sense with --fenced"),
        (
            &["--lab", "--inject-bug", "retry-with-fresh-id", "--writer", "grouped"],
            "a bug of the writer single",
        ),
        (
            &["--lab", "--inject-bug-control", "no-stock-condition", "--writer", "grouped"],
            "a bug of the writer single",
        ),
        (&["--mode", "queued"], "makes no sense with --writer single"),
        (&queued(&["--lock", "fair"]), "--mode queued makes no sense with that --lock"),
        (&queued(&["--lock", "mysql-row"]), "makes no sense with that lock"),
        (&queued(&["--lock-scope", "voucher"]), "makes no sense with --lock-scope voucher"),
        (&queued(&["--lab", "--on-lost", "ignore"]), "makes no sense with --on-lost ignore"),
        (&queued(&["--lab", "--guards", "off"]), "naive code writes one at a time"),
        (&queued(&["--lab", "--lock-order", "inside"]), "no sense with --lock-order inside"),
        (&["--queue-length", "10"], "--queue-length is for --mode queued"),
        (&["--lab", "--inject-bug", "lost-compensation"], "is a bug of --mode queued"),
        (&["--lab", "--inject-bug", "one-consumer-name"], "is a bug of --mode queued"),
        (&["--unpaid-timeout-s", "900"], "--unpaid-timeout-s needs PAYMENT_SECRET"),
        (
            &["--unpaid-timeout-s", "900", "--payment-secret", SECRET, "--lab", "--guards", "off"],
            "naive code overwrites",
        ),
        (&["--payment-secret", "weak"], "PAYMENT_SECRET must have at least 32 bytes"),
        (&["--group-size", "10"], "--group-size is for --writer grouped"),
        (&["--group-queue", "10"], "--group-queue is for --writer grouped"),
        (
            &["--lock", "mysql-row", "--lab", "--inject-bug", "release-before-commit"],
            "ends with the order's transaction",
        ),
        (&["--lab", "--failpoints", "sale-committed=panic"], "this program has no failpoints"),
        (&["--lock", "lua-release", "--lab", "--fenced"], "and lua-release has none"),
        (&["--lock", "none", "--lab", "--fenced"], "and none has none"),
        (&["--lock", "local", "--lab", "--fenced"], "and local has none"),
        (&["--lock", "mysql-named", "--lab", "--fenced"], "and mysql-named has none"),
    ];
    for (flags, why) in cases {
        serve(&place, flags).refused(Some(&place), why);
    }
}

#[test]
fn an_injected_bug_and_its_control_run_exclude_each_other() {
    let place = nowhere();
    let both = ["--lab", "--inject-bug", "lying-audit", "--inject-bug-control", "lying-audit"];
    serve(&place, &both).refused(Some(&place), "--inject-bug-control is the run without the bug");
}

/// Another listener on the port is not what is wrong.
#[test]
fn bad_usage_is_reported_before_a_port_is_bound_and_a_server_is_asked() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("its address").to_string();
    let place = nowhere();
    let one = "redis://:hush-3@127.0.0.1:1/0";
    let redlock = |urls: &str| ["--lock", "redlock", "--redlock-urls", urls].map(str::to_owned);
    let cases = [
        (
            redlock(&format!("{one},redis://127.0.0.1:2/0")),
            "needs 3 or 5 independent Redis servers",
        ),
        (redlock(&format!("{one},redis://:hush-4@127.0.0.1:1/0")), "names 127.0.0.1:1/0 twice"),
        (redlock("http://:hush-3@127.0.0.1:1/0"), "--redlock-urls is not usable: "),
        (
            redlock("redis+cluster://:hush-3@127.0.0.1:1"),
            "needs independent servers, not a cluster or sentinels",
        ),
        (
            redlock("redis+sentinel://:hush-3@127.0.0.1:1/shop"),
            "needs independent servers, not a cluster or sentinels",
        ),
    ];
    for (flags, why) in cases {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let ended = run(&[&["serve", "--bind", &taken], &flags[..]].concat(), &env(&place));
        assert!(!ended.stderr.contains("hush"), "{ended:?}");
        ended.refused(Some(&place), why);
    }
    let redis = Place { redis_url: "http://:hush-2@127.0.0.1:1/0".into(), ..nowhere() };
    let database = |url: &str| Place { database_url: url.into(), ..nowhere() };
    for (place, why) in [
        (redis, "REDIS_URL is not usable: "),
        (database("postgres://u:hush-1@127.0.0.1:1/shop"), "must begin with mysql://"),
        (database("mysql://u:hush-1@127.0.0.1:port/shop"), "invalid port number"),
    ] {
        run(&["serve", "--bind", &taken], &env(&place)).refused(Some(&place), why);
    }
}

#[test]
fn settings_of_independent_servers_are_refused_without_them_and_with_other_locks() {
    let place = nowhere();
    let three = "redis://:hush@127.0.0.1:1/0,redis://:hush@127.0.0.1:2/0,redis://127.0.0.1:3/0";
    let redlock = ["--lock", "redlock", "--redlock-urls", three];
    let redlock = |flags: &[&'static str]| [&redlock[..], flags].concat();
    let cases: [(&[&str], &str); 5] = [
        (
            &["--redlock-restart-delay-ms", "60000"],
            "--redlock-restart-delay-ms (REDLOCK_RESTART_DELAY_MS) is for the lock redlock, not \
             for redisson",
        ),
        (
            &redlock(&["--redlock-restart-delay-ms", "29999"]),
            "must be 0 or at least the lease of 30000 ms",
        ),
        (&["--lock", "redlock"], "the lock redlock needs --redlock-urls (REDLOCK_URLS)"),
        (
            &["--lock", "multi", "--redlock-urls", ""],
            "the lock multi needs --redlock-urls (REDLOCK_URLS)",
        ),
        (&redlock(&["--lab", "--fenced"]), "and redlock has none"),
    ];
    for (flags, why) in cases {
        let ended = serve(&place, flags);
        assert!(!ended.stderr.contains("hush"), "{ended:?}");
        ended.refused(Some(&place), why);
    }
}

#[test]
fn the_former_names_of_redlock_and_its_settings_still_work() {
    let two = "redis://127.0.0.1:1/0,redis://127.0.0.1:2/0";
    let why = "the lock redlock needs 3 or 5 independent Redis servers, and there are 2";
    let place = nowhere();
    serve(&place, &["--lock", "red", "--red-urls", two]).refused(Some(&place), why);
    let by_environment = [&env(&place)[..], &[("LOCK", "red"), ("RED_URLS", two)]].concat();
    run(&["serve"], &by_environment).refused(Some(&place), why);
    let both = ["--lock", "redlock", "--redlock-urls", two, "--red-urls", "redis://127.0.0.1:3/0"];
    serve(&place, &both).refused(Some(&place), why);
    let delay = ["--red-urls", two, "--red-restart-delay-ms", "29999", "--lease-ms", "30000"];
    serve(&place, &[&["--lock", "red"], &delay[..]].concat())
        .refused(Some(&place), "--redlock-restart-delay-ms");
    let help = run(&["serve", "--help"], &[]).fine();
    assert!(!help.contains("--red-") && !help.contains("RED_"), "{help}");
}

#[test]
fn an_address_that_can_be_none_is_bad_usage_for_a_command_under_a_lock_too() {
    let run = |flags: &[&str]| {
        let command = ["--", "/bin/echo", "in"];
        run(&[&["lock", "run", "--name", "a"], flags, &command].concat(), &[])
    };
    let (redis, two) = ("redis://127.0.0.1:1/0", "redis://127.0.0.1:1/0,redis://127.0.0.1:2/0");
    let cases: [(&[&str], &str); 8] = [
        (&["--redis-url", "nonsense"], "--redis-url is not usable: "),
        (&["--redis-url", "http://:hush@127.0.0.1:1/0"], "--redis-url is not usable: "),
        (&["--redis-url", "redis+cluster://127.0.0.1:1/3"], "has the database 0 only"),
        (&["--redis-url", "redis+sentinel://:hush@127.0.0.1:1"], "names the service: "),
        (&["--kind", "mysql-table", "--database-url", "nonsense"], "must begin with mysql://"),
        (
            &["--token", "--redis-url", redis, "--database-url", "mysql://u:p@h:port/d"],
            "invalid port number",
        ),
        (&["--kind", "redlock", "--redlock-urls", two], "needs 3 or 5 independent Redis servers"),
        (&["--kind", "multi", "--redlock-urls", "nonsense"], "--redlock-urls is not usable: "),
    ];
    for (flags, why) in cases {
        let ended = run(flags);
        assert!(!ended.stderr.contains("hush"), "{ended:?}");
        ended.refused(None, why);
    }
    // What can be one, and is not there, is the server's failure.
    assert_eq!(run(&["--redis-url", redis]).code, Some(69));
}

#[test]
fn a_port_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let place = nowhere();
    let why = format!("cannot listen on {address}: Address already in use");
    run(&["serve", "--bind", &address], &env(&place)).refused(Some(&place), &why);
}

#[test]
fn a_server_that_is_not_there_or_says_no_is_named_at_once() {
    let good = Place::fresh();
    // The listener accepts, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("its address");
    let database = |url: String| Place { database_url: url, redis_url: good.redis_url.clone() };
    let redis = |url: String| Place { database_url: good.database_url.clone(), redis_url: url };
    // MySQL says no to a wrong password only where the whole of it may be sent: over TLS.
    let (left, _) = good.database_url.rsplit_once('/').expect("a database");
    let wrong_password = left.replace("seckill:", "seckill:x") + "/shop";
    let no_password = good.redis_url.replace("redis://:", "redis://:x");
    assert!(!wrong_password.starts_with(left) && no_password != good.redis_url);
    let schema = "cannot migrate DATABASE_URL";
    let cases = [
        (database("mysql://seckill:hush-1@127.0.0.1:1/shop".into()), schema, "Connection refused"),
        (database(format!("mysql://seckill:hush-1@{silent}/shop")), schema, "does not answer"),
        (database(wrong_password), schema, "Access denied"),
        (database(format!("{left}/no_such_shop")), schema, "no_such_shop"),
        (redis("redis://:hush-2@127.0.0.1:1/0".into()), "cannot connect to REDIS_URL", "refused"),
        (redis(format!("redis://:hush-2@{silent}/0")), "cannot connect to REDIS_URL", "redis"),
        (redis(no_password), "cannot connect to REDIS_URL", "redis"),
    ];
    thread::scope(|scope| {
        for (place, what, why) in &cases {
            scope.spawn(move || {
                let ended = serve(place, &[]);
                assert!(ended.stderr.contains(what), "{ended:?}");
                ended.refused(Some(place), why);
            });
        }
    });
    // A start that fails for want of Redis breaks off no step of the schema.
    run(&["migrate"], &env(&good)[..1]).fine();
    for (place, what, why) in &cases[..4] {
        let no_schema = serve(place, &["--no-migrate"]);
        assert_eq!(no_schema.code, Some(2), "{what} {why}: {no_schema:?}");
        assert_eq!(no_schema.stderr.lines().count(), 1, "{no_schema:?}");
    }
}

#[test]
fn a_database_without_the_schema_is_reported_with_the_command_that_makes_it() {
    let place = Place::fresh();
    serve(&place, &["--no-migrate"]).refused(Some(&place), "`seckill migrate` makes it");
}

#[test]
fn a_redis_that_may_evict_locks_is_refused_unless_it_is_allowed() {
    let redis = servers().bed.redis(RedisOptions::default()).expect("a Redis of one's own");
    let place = Place { redis_url: redis.url().to_owned(), ..Place::fresh() };
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let mut set = |policy: &str| {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("maxmemory-policy").arg(policy);
        command.exec(&mut connection).expect("Redis takes it");
    };
    let under_lock = |flags: &[&str]| {
        let line = ["lock", "run", "--name", "a"];
        run(&[&line, flags, &["--", "/bin/echo", "in"]].concat(), &env(&place)[1..2])
    };
    for policy in ["allkeys-lru", "volatile-lru", "allkeys-random", "volatile-ttl", "volatile-lfu"]
    {
        set(policy);
        let why = format!("maxmemory-policy is {policy}");
        let (served, locked) = (serve(&place, &[]), under_lock(&[]));
        let code = locked.code;
        assert_eq!((code, locked.stdout.as_str()), (Some(78), ""), "{locked:?}");
        assert_eq!(locked.stderr, served.stderr, "the same words");
        served.refused(Some(&place), &why);
    }
    assert_eq!(under_lock(&["--allow-eviction"]).fine(), "in\n");
    let by_kind = under_lock(&["--kind", "set-nx"]);
    assert_eq!(by_kind.code, Some(78), "whatever the kind: {by_kind:?}");
    let start = |flags: &[&str]| {
        let spec = ReplicaSpec::new("evicting", SECKILL).args(ANY_PORT).args(flags.iter().copied());
        let spec = env(&place).into_iter().fold(spec, |spec, (key, value)| spec.env(key, value));
        servers().bed.replica(spec)
    };
    drop(start(&["--allow-eviction"]).expect("it was allowed"));
    set("noeviction");
    drop(start(&[]).expect("such a Redis is fine"));
}
