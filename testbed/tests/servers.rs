//! Every server starts, asks for its password, and can be killed, frozen, thawed and restarted.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use support::{await_that, request, stand_in};
use testbed::{Bed, Database, Flavor, Redis, RedisOptions};

/// How long an answer takes at most, even if the machine stands still for seconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// A server that is silent for so long is frozen.
const SILENCE: Duration = Duration::from_millis(300);

/// Sends Redis one command after logging in with `password`; gives its answers.
fn ask(redis: &Redis, password: &str, command: &str) -> String {
    ask_within(ANSWERED_WITHIN, redis, password, command)
}

/// Asks as [`ask`] does, and gives up after that much silence.
fn ask_within(silence: Duration, redis: &Redis, password: &str, command: &str) -> String {
    let mut stream = TcpStream::connect(redis.addr()).unwrap();
    stream.set_read_timeout(Some(silence)).unwrap();
    let login = if password.is_empty() { String::new() } else { format!("AUTH {password}\r\n") };
    stream.write_all(format!("{login}{command}\r\nQUIT\r\n").as_bytes()).unwrap();
    let (mut answer, mut buffer) = (String::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        answer += &String::from_utf8_lossy(&buffer[..count]);
    }
    answer
}

fn password(redis: &Redis) -> &str {
    redis.url().strip_prefix("redis://:").unwrap().split_once('@').unwrap().0
}

/// Whether the database greets a client in that time.
fn greets_within(limit: Duration, database: &Database) -> bool {
    let Ok(mut stream) = TcpStream::connect(database.addr()) else { return false };
    stream.set_read_timeout(Some(limit)).unwrap();
    stream.read(&mut [0; 64]).is_ok_and(|count| count > 0)
}

#[test]
fn everything_starts_in_a_few_seconds_and_its_secrets_stay_private() {
    let start = Instant::now();
    let bed = Bed::start().unwrap();
    let (redis, database) = thread::scope(|scope| {
        let redis = scope.spawn(|| bed.redis(RedisOptions::default()).unwrap());
        let database = bed.database(Flavor::Any).unwrap();
        (redis.join().unwrap(), database)
    });
    println!("Redis and {} {}: {:?}", database.flavor(), database.version(), start.elapsed());
    let replica = bed.replica(stand_in("a").env("REDIS_URL", redis.url())).unwrap();
    let proxy = bed.haproxy(&[replica.addr()]).unwrap();
    println!("with a replica and HAProxy: {:?}", start.elapsed());
    assert_eq!(request(proxy.url(), "/", "").status, 200);

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(bed.dir()), 0o700);
    let url = database.url("x");
    let database_password =
        url.strip_prefix("mysql://seckill:").unwrap().split_once('@').unwrap().0;
    assert!(database_password.len() >= 32 && password(&redis).len() >= 32);
    for entry in fs::read_dir(bed.dir()).unwrap().flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        if text.contains(database_password) || text.contains(password(&redis)) {
            assert_eq!(mode(&entry.path()), 0o600, "{}", entry.path().display());
        }
    }
    for pid in [redis.pid(), database.pid(), replica.pid(), proxy.pid()] {
        let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let cmdline = String::from_utf8_lossy(&cmdline);
        assert!(cmdline.len() > 4, "process {pid} runs");
        assert!(!cmdline.contains(database_password) && !cmdline.contains(password(&redis)));
    }
    let dir = bed.dir().to_owned();
    drop(bed);
    assert!(!dir.exists());
    assert!(!redis.is_running() && !database.is_running());
    assert_eq!(redis.restart().unwrap_err().to_string(), "the test bed is closed");
    println!("until all was gone: {:?}", start.elapsed());
}

#[test]
fn redis_wants_the_password_and_evicts_nothing() {
    let bed = Bed::start().unwrap();
    let redis = bed.redis(RedisOptions::default()).unwrap();
    assert!(ask(&redis, "", "PING").starts_with("-NOAUTH"));
    assert!(ask(&redis, "wrong", "PING").starts_with("-WRONGPASS"));
    assert!(ask(&redis, password(&redis), "CONFIG GET maxmemory-policy").contains("noeviction"));
}

#[test]
fn a_killed_redis_restarts_on_its_port_with_what_it_was_configured_to_keep() {
    let bed = Bed::start().unwrap();
    let forgetful = bed.redis(RedisOptions::default()).unwrap();
    let extra = vec!["hz 50".into(), "databases 3".into()];
    let options = RedisOptions { appendonly: true, extra, ..RedisOptions::default() };
    let keeping = bed.redis(options).unwrap();
    for redis in [&forgetful, &keeping] {
        assert!(ask(redis, password(redis), "SET k v").starts_with("+OK\r\n+OK"));
        let (pid, address) = (redis.pid(), redis.addr());
        redis.kill().unwrap();
        assert!(!redis.is_running());
        assert!(TcpStream::connect(address).is_err());
        redis.restart().unwrap();
        assert!(redis.is_running() && redis.pid() != pid && redis.addr() == address);
    }
    assert!(ask(&forgetful, password(&forgetful), "GET k").contains("$-1"));
    assert!(ask(&keeping, password(&keeping), "GET k").contains("$1\r\nv"));
    assert!(ask(&keeping, password(&keeping), "CONFIG GET databases").contains("\r\n3\r\n"));
}

#[test]
fn a_frozen_server_answers_nothing_until_it_is_thawed_and_can_be_killed() {
    let bed = Bed::start().unwrap();
    let redis = bed.redis(RedisOptions::default()).unwrap();
    let database = bed.database(Flavor::Any).unwrap();
    redis.freeze().unwrap();
    database.freeze().unwrap();
    assert!(redis.is_running() && database.is_running());
    assert_eq!(ask_within(SILENCE, &redis, password(&redis), "PING"), "");
    assert!(!greets_within(SILENCE, &database));
    redis.thaw().unwrap();
    database.thaw().unwrap();
    assert!(ask(&redis, password(&redis), "PING").contains("+PONG"));
    assert!(greets_within(ANSWERED_WITHIN, &database));
    redis.freeze().unwrap();
    database.freeze().unwrap();
    redis.kill().unwrap();
    database.restart().unwrap();
    assert!(greets_within(ANSWERED_WITHIN, &database));
    let error = redis.freeze().unwrap_err().to_string();
    assert!(error.contains("redis is not running, so it cannot get SIGSTOP"), "{error}");
}

#[test]
fn a_killed_database_restarts_on_its_port_with_its_data() {
    let bed = Bed::start().unwrap();
    let database = bed.database(Flavor::Any).unwrap();
    database.create_database("shop").unwrap();
    let url = database.url("shop");
    database.kill().unwrap();
    assert!(database.create_database("other").is_err());
    database.restart().unwrap();
    assert_eq!(database.url("shop"), url);
    let error = database.create_database("shop").unwrap_err().to_string();
    assert!(error.contains("exists"), "{error}");
    let status = database.stop(Duration::from_secs(10)).unwrap();
    assert!(status.success(), "{status}");
    database.restart().unwrap();
    database.drop_database("shop").unwrap();
}

#[test]
fn a_replica_keeps_its_address_over_restarts_and_sees_no_foreign_environment() {
    let bed = Bed::start().unwrap();
    let replica = bed.replica(stand_in("a").env("JWT_SECRET", "x")).unwrap();
    let twin = bed.replica(stand_in("a")).unwrap();
    assert_eq!(twin.name(), "a-2");
    let base_url = replica.base_url().to_owned();
    assert_eq!(request(&base_url, "/readyz", "").status, 200);
    let status = replica.stop(Duration::from_secs(5)).unwrap();
    assert_eq!(status.signal(), Some(15));
    replica.restart().unwrap();
    assert_eq!(replica.base_url(), base_url);
    assert_eq!(request(&base_url, "/readyz", "").status, 200);
    assert_eq!(replica.log_tail(10).matches("listening on").count(), 2);

    let environ = fs::read(format!("/proc/{}/environ", replica.pid())).unwrap();
    let environ = String::from_utf8_lossy(&environ);
    let keys: Vec<&str> = environ.split('\0').filter_map(|e| Some(e.split_once('=')?.0)).collect();
    assert!(keys.contains(&"JWT_SECRET") && keys.contains(&"PATH"), "{keys:?}");
    // Cargo sets this one for the test itself.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert!(!keys.contains(&"CARGO_MANIFEST_DIR"), "{keys:?}");
}

#[test]
fn stopping_a_frozen_replica_kills_it_at_the_deadline_and_says_so() {
    let bed = Bed::start().unwrap();
    let replica = bed.replica(stand_in("a")).unwrap();
    replica.freeze().unwrap();
    let error = replica.stop(Duration::from_millis(200)).unwrap_err().to_string();
    assert!(error.contains("a did not exit within 200ms of SIGTERM"), "{error}");
    assert!(error.contains("listening on"), "the log's tail: {error}");
    assert!(!replica.is_running());
}

#[test]
fn a_dropped_handle_ends_its_process_and_no_other() {
    let bed = Bed::start().unwrap();
    let keep = bed.replica(stand_in("keep")).unwrap();
    let gone = bed.replica(stand_in("gone")).unwrap();
    let address = gone.addr();
    drop(gone);
    assert!(TcpStream::connect(address).is_err());
    assert!(keep.is_running());
}

#[test]
fn ctrl_c_at_the_terminal_does_not_reach_the_servers() {
    let bed = Bed::start().unwrap();
    let replica = bed.replica(stand_in("a")).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", replica.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // State, parent, process group: one of its own.
    assert_eq!(fields[2], replica.pid().to_string());
}

#[test]
fn servers_outlive_the_thread_that_asked_for_them() {
    let bed = Bed::start().unwrap();
    let redis = thread::scope(|scope| {
        scope.spawn(|| bed.redis(RedisOptions::default()).unwrap()).join().unwrap()
    });
    assert!(ask(&redis, password(&redis), "PING").contains("+PONG"));
    assert!(redis.is_running());
}

#[test]
fn the_logs_are_shown_when_a_test_panics() {
    let output =
        Command::new(support::STAND_IN).args(["own", "panic"]).output().expect("the stand-in");
    let stderr = String::from_utf8_lossy(&output.stderr);
    for line in ["end of /", "redis.log", "Ready to accept connections", "listening on http://"] {
        assert!(stderr.contains(line), "no `{line}` in: {stderr}");
    }
}

#[test]
fn a_commit_waits_for_space_on_a_full_disk_and_is_rolled_back_by_a_restart() {
    let bed = Bed::start().unwrap();
    let database = bed.database_with_disk_space(Flavor::Any).unwrap();
    database.create_database("shop").unwrap();
    database.execute_in("shop", "CREATE TABLE sold (id INT PRIMARY KEY)").unwrap();
    let insert = || database.execute_in("shop", "INSERT INTO sold VALUES (1)");
    database.fill_disk().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(insert);
        let failed = || database.writes_without_space().unwrap() > 0;
        await_that("a write that fails", Duration::from_secs(10), failed);
        assert!(!waiting.is_finished());
        database.make_space().unwrap();
        waiting.join().unwrap().expect_err("its connection has ended");
    });
    insert().unwrap();
    insert().expect_err("there is one");
    let refused = bed.database(Flavor::Any).unwrap().fill_disk().unwrap_err().to_string();
    assert!(refused.contains("was started without a disk of its own"), "{refused}");
}
