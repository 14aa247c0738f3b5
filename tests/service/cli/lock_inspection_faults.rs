//! `seckill lock ls`, `show`, `free` and `wait-for` where a server is away or denies access.

use distlock::{Backend, LockKind};
use nix::sys::signal::Signal;
use serde_json::Value;
use testbed::Command;

use super::lock_run::{Bench, until};
use super::run;
use crate::support::servers;

const HOLD: &str = "touch held; sleep 600";

fn redis_kinds() -> impl Iterator<Item = LockKind> {
    LockKind::ALL.into_iter().filter(|kind| kind.backend() == Backend::Redis)
}

/// The bench's Redis, for a user with these rights and the right to choose the bench's database.
fn redis_url(bench: &Bench, user: &str, rules: &str) -> String {
    let rules = format!("reset on nopass {rules} +select");
    let words: Vec<_> = ["ACL", "SETUSER", user].into_iter().chain(rules.split(' ')).collect();
    servers().redis.command(&words).expect("a user");
    bench.place.redis_url.replace("://:", &format!("://{user}:"))
}

/// The environment of a command that looks there. Nothing stops that server but the machine.
fn env(redis_url: &str) -> [(&str, &str); 2] {
    [("REDIS_URL", redis_url), ("REDIS_TIMEOUT_MS", "10000")]
}

/// The rights that ship for an inspector.
fn shipped() -> String {
    let rules = include_str!("../../../deploy/redis-inspector.acl").lines();
    rules.filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ")
}

fn held(bench: &Bench, kind: LockKind) -> (String, super::lock_run::RunningCommand) {
    let name = format!("lock:{} {kind}", bench.name);
    let file = format!("held-{kind}");
    let script = format!("touch '{}'; sleep 600", bench.path(&file).display());
    let flags = ["--kind", kind.as_str(), "--name", &name, "--lease", "5m"];
    let line = [&["lock", "run"][..], &flags, &["--", "sh", "-c", &script]].concat();
    let running = bench.start_line(&line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    bench.until_there(&file);
    (name, running)
}

#[test]
fn the_rights_that_ship_are_enough_to_list_show_and_free_locks_of_every_kind_in_redis() {
    let bench = Bench::new();
    let url = redis_url(&bench, "inspects", &shipped());
    let env = env(&url);
    for kind in redis_kinds() {
        let (name, running) = held(&bench, kind);
        let flags = ["--kind", kind.as_str()];
        let listed = run(&[&["lock", "ls"], &flags[..]].concat(), &env).fine();
        assert!(listed.contains(&name), "{kind}: {listed}");
        let shown = run(&[&["lock", "show", &name], &flags[..]].concat(), &env).fine();
        assert!(shown.contains("held"), "{kind}: {shown}");
        let free = ["lock", "free", &name, "--reason", "a test", "--yes"];
        run(&[&free, &flags[..]].concat(), &env).fine();
        run(&[&["lock", "wait-for", &name], &flags[..]].concat(), &env).fine();
        drop(running);
    }
    assert_eq!(run(&["lock", "ls", "--deadlocks"], &env).fine().trim(), "no deadlock");
    let listed = run(&["lock", "ls", "--json"], &env).fine();
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed["complete"], true, "{listed}");
}

#[test]
fn a_right_that_is_missing_is_named() {
    let bench = Bench::new();
    for (missing, kind, command) in [
        ("scan", "redisson", &["ls"][..]),
        ("lrange", "fair", &["show", "lock:a"]),
        ("strlen", "set-nx", &["show", "lock:a"]),
        ("evalsha", "redisson", &["wait-for", "lock:a"]),
        ("hvals", "redisson", &["free", "lock:a", "--reason", "a test", "--yes"]),
    ] {
        bench.redis::<()>(&["DEL", "lock:a"]);
        if kind == "set-nx" {
            // The size of a shorter one is known by its encoding, which Valkey has up to 128 bytes.
            bench.redis::<()>(&["SET", "lock:a", &"o".repeat(200)]);
        } else {
            bench.redis::<()>(&["HSET", "lock:a", "owner", "1"]);
        }
        let url = redis_url(&bench, "lacks", &format!("{} -{missing}", shipped()));
        let line = [&["lock"], command, &["--kind", kind]].concat();
        let ended = run(&line, &env(&url));
        assert_eq!(ended.code, Some(78), "{ended:?}");
        assert!(ended.stderr.contains(&format!("'{missing}'")), "{ended:?}");
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn waiting_for_a_row_ends_at_once_for_a_user_without_the_right_to_see_its_holder() {
    let bench = Bench::new();
    let (_, place) = bench.place.database_url.split_once('@').expect("a login");
    let (_, name) = place.rsplit_once('/').expect("a database");
    let name = name.split('?').next().expect("its name");
    for statement in
        ["CREATE USER rowless@'%'".to_owned(), format!("GRANT SELECT ON {name}.* TO rowless@'%'")]
    {
        servers().database.execute_in(name, &statement).expect("a user");
    }
    let holder = bench.start(&["--kind", "mysql-row"], HOLD);
    bench.until_there("held");
    let url = format!("mysql://rowless@{place}");
    let wait = ["lock", "wait-for", &bench.name, "--kind", "mysql-row", "--timeout", "5m"];
    let ended = run(&wait, &[("DATABASE_URL", url.as_str())]);
    assert_eq!(ended.code, Some(78), "{ended:?}");
    assert!(ended.stderr.contains("the right "), "{ended:?}");
    drop(holder);
}

#[test]
fn a_list_without_one_of_its_servers_is_printed_and_says_that_it_is_not_complete() {
    let bench = Bench::new();
    bench.redis::<()>(&["HSET", &bench.name, "owner", "1"]);
    let plain = env(&bench.place.redis_url);
    let nobody = ["--redlock-urls", "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3"];
    let away = ["--database-url", "mysql://seckill:hush@127.0.0.1:1/seckill"];
    let ls = ["lock", "ls", "--json", "--prefix", &bench.name];
    let listed = |more: &[&str], env: &[(&str, &str)]| {
        let ended = run(&[&ls[..], more].concat(), env);
        assert!(!ended.stderr.contains("hush"), "{ended:?}");
        let list: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        (ended.code, list, ended.stderr)
    };
    let (code, list, stderr) = listed(&away, &plain);
    assert_eq!((code, &list["complete"]), (Some(69), &false.into()), "{list}");
    assert_eq!(list["locks"][0]["name"], bench.name.as_str(), "{list}");
    let failure = &list["failures"][0];
    assert_eq!((&failure["kinds"][0], &failure["exit_code"]), (&"mysql-table".into(), &69.into()));
    assert!(stderr.contains(failure["reason"].as_str().expect("a reason")), "{stderr}");
    let (code, list, _) = listed(&nobody, &plain);
    assert_eq!((code, &list["complete"]), (Some(69), &false.into()), "{list}");

    // A file that is not there is a mistake of the command line, and no kind of a server.
    let (code, list, stderr) = listed(&["--redis-ca-file", "/no/such/file"], &plain);
    assert_eq!((code, &list["complete"]), (Some(2), &false.into()), "{list} {stderr}");
    assert_eq!(list["unlisted"], Value::Array(Vec::new()));

    let url = redis_url(&bench, "half", &format!("{} -lrange", shipped()));
    bench.redis::<()>(&["ZADD", &format!("distlock_fair:{{{}}}", bench.name), "1", "id:owner"]);
    let (code, list, _) = listed(&away, &env(&url));
    assert_eq!(code, Some(78), "the more lasting failure counts: {list}");
    let kinds: Vec<_> =
        list["failures"].as_array().expect("two").iter().map(|it| &it["kinds"][0]).collect();
    assert!(kinds.contains(&&"fair".into()) && kinds.contains(&&"mysql-table".into()), "{list}");
}

#[test]
fn a_timestamp_that_has_passed_is_no_lock_in_a_list_of_all_kinds() {
    let bench = Bench::new();
    let (past, future) = (format!("{} past", bench.name), format!("{} future", bench.name));
    bench.redis::<()>(&["SET", &past, "1700000000000"]);
    bench.redis::<()>(&["SET", &future, "4000000000000"]);
    bench.redis::<()>(&["SET", &format!("{} owner", bench.name), "7"]);
    let ls = ["lock", "ls", "--json", "--prefix", &bench.name];
    let env = env(&bench.place.redis_url);
    let list: Value = serde_json::from_str(&run(&ls, &env).fine()).expect("JSON");
    let rows = list["locks"].as_array().expect("rows");
    let rows: Vec<_> = rows.iter().map(|row| (&row["name"], row["kinds"].to_string())).collect();
    let [(timestamp, kinds), (owner, others)] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(**timestamp, future);
    assert_eq!(kinds, r#"["getset-timestamp"]"#);
    assert!(owner.to_string().contains("owner") && others.contains("set-nx"), "{rows:?}");
    let past = run(&["lock", "show", &past, "--kind", "getset-timestamp"], &env).fine();
    assert!(past.contains("state:   free"), "{past}");
}

#[test]
fn a_wait_outlives_a_short_outage_of_its_server() {
    let mut bench = Bench::new();
    let holder = bench.start(&[], HOLD);
    bench.until_there("held");
    let (proxy, through) = bench.place.redis_through_proxy();
    let looks = proxy.watch(Command::redis("EVALSHA").containing(bench.name.as_str()));
    let direct = std::mem::replace(&mut bench.place, through);
    let waits = bench.start_line(&["lock", "wait-for", &bench.name].map(str::to_owned));
    until("it looks", || looks.matched() > 0);
    proxy.start_outage();
    until("it tries again", || proxy.counts().refused > 1);
    bench.place = direct;
    bench.redis::<()>(&["DEL", &bench.name]);
    proxy.end_outage();
    let ended = waits.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    drop(holder);
}

#[test]
fn a_list_that_is_watched_outlives_an_outage_and_ends_with_a_signal() {
    let mut bench = Bench::new();
    bench.redis::<()>(&["HSET", &bench.name, "owner", "1"]);
    let (proxy, through) = bench.place.redis_through_proxy();
    bench.place = through;
    let reads = || proxy.watch(Command::redis("SCAN"));
    let line = ["lock", "ls", "--watch", "--kind", "redisson", "--prefix", &bench.name];
    let before = reads();
    let watches = bench.start_line(&line.map(str::to_owned));
    // The second list begins when the first one is printed.
    until("it lists", || before.matched() > 1);
    proxy.start_outage();
    until("it tries again", || proxy.counts().refused > 1);
    proxy.end_outage();
    let after = reads();
    until("it lists again", || after.matched() > 1);
    watches.signal(Signal::SIGINT);
    let ended = watches.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lists = ended.stdout.lines().filter(|line| line.starts_with(&bench.name)).count();
    assert!(lists > 1, "{ended:?}");
    assert!(ended.stdout.contains("not complete: redisson: "), "{ended:?}");
}
