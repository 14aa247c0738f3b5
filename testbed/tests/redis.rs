//! Redis in company: replicas, several at a time, all ways to reach one, a clock that jumps, and a
//! disk that stalls or is full.

mod support;

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use support::await_that;
use testbed::{Bed, Evictions, Redis, RedisMaster, RedisOptions};

/// By when Redis has tried again to write: it does that every second.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

fn replica_of(master: RedisMaster) -> RedisOptions {
    RedisOptions { replica_of: Some(master), ..RedisOptions::default() }
}

/// Forwards connections to `to`, both ways.
fn forwarder(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(to).unwrap();
            let ends = [(&client, &server), (&server, &client)]
                .map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()));
            for (mut from, mut to) in ends {
                thread::spawn(move || io::copy(&mut from, &mut to));
            }
        }
    });
    address
}

/// What a program writes, and whether it succeeds.
fn run(program: &str, args: &[&str]) -> (bool, String) {
    let output = Command::new(program).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Our clock, in milliseconds.
fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

/// The server's clock, in milliseconds ahead of ours: that at least, and that at most. It was read
/// between two readings of ours.
fn clock_offset(redis: &Redis) -> [i64; 2] {
    let before = now_ms();
    let answer = redis.command(&["TIME"]).unwrap();
    let after = now_ms();
    let (seconds, micros) = answer.split_once('\n').unwrap();
    let (seconds, micros): (i64, i64) = (seconds.parse().unwrap(), micros.parse().unwrap());
    assert!((0..1_000_000).contains(&micros), "{answer}");
    let server = seconds * 1000 + micros / 1000;
    [server - after, server - before]
}

/// Whether the server's clock is so far ahead of ours, give or take less than half a second.
fn is_ahead_by(redis: &Redis, offset: i64) -> bool {
    let [least, most] = clock_offset(redis);
    least - 500 < offset && offset < most + 500
}

#[test]
fn a_command_is_answered_as_redis_cli_would() {
    let bed = Bed::start().unwrap();
    let redis = bed.redis(RedisOptions::default()).unwrap();
    let answers = [
        (&["SET", "k", "two words\r\nand a line"][..], "OK"),
        (&["GET", "k"], "two words\r\nand a line"),
        (&["GET", "none"], ""),
        (&["RPUSH", "list", "a", "b"], "2"),
        (&["EVAL", "return {1, {'x', false}, {}, 'é'}", "0"], "1\nx\n\né"),
    ];
    for (words, answer) in answers {
        assert_eq!(redis.command(words).unwrap(), answer);
    }
    let error = redis.command(&["GET", "list"]).unwrap_err().to_string();
    let sentence = "redis did not do `GET list`: WRONGTYPE Operation against a key holding the \
                    wrong kind of value";
    assert_eq!(error, sentence);
}

#[test]
fn a_replica_is_ready_with_its_masters_data_and_stays_a_master_once_promoted() {
    let bed = Bed::start().unwrap();
    let master = bed.redis(RedisOptions::default()).unwrap();
    master.command(&["SET", "before", "1"]).unwrap();
    // By way of a program between them, as a test needs it that loses what is sent.
    let way = RedisMaster { addr: forwarder(master.addr()), ..master.as_master() };
    let replica = bed.redis(replica_of(way)).unwrap();
    assert_eq!(replica.command(&["GET", "before"]).unwrap(), "1");
    let error = replica.command(&["SET", "k", "v"]).unwrap_err().to_string();
    assert!(error.contains("READONLY"), "{error}");
    master.command(&["SET", "after", "2"]).unwrap();
    assert_eq!(master.command(&["WAIT", "1", "4000"]).unwrap(), "1");
    assert_eq!(replica.command(&["GET", "after"]).unwrap(), "2");

    master.freeze().unwrap();
    replica.promote().unwrap();
    replica.command(&["SET", "k", "v"]).unwrap();
    assert_eq!(replica.command(&["GET", "after"]).unwrap(), "2");
    replica.restart().unwrap();
    assert!(replica.command(&["ROLE"]).unwrap().starts_with("master"));
}

#[test]
fn a_replica_without_a_master_is_not_ready() {
    let bed = Bed::start().unwrap();
    let master = bed.redis(RedisOptions::default()).unwrap();
    master.kill().unwrap();
    // In this time it must begin to answer, or the sentence is another one.
    let short = Bed::builder().ready_within(Duration::from_secs(3)).start().unwrap();
    let error = short.redis(replica_of(master.as_master())).unwrap_err().to_string();
    let sentence = "redis was not ready after 3s: it is a replica and has not got the data";
    assert!(error.starts_with(sentence), "{error}");
}

#[test]
fn five_redis_start_in_the_time_of_one_and_share_nothing() {
    let bed = Bed::start().unwrap();
    let start = Instant::now();
    let all = bed.redis_many(5, RedisOptions::default()).unwrap();
    println!("five servers: {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let urls: HashSet<&str> = all.iter().map(Redis::url).collect();
    assert_eq!(urls.len(), 5);
    for (redis, number) in all.iter().zip(["1", "2", "3", "4", "5"]) {
        redis.command(&["SET", "number", number]).unwrap();
    }
    for (redis, number) in all.iter().zip(["1", "2", "3", "4", "5"]) {
        assert_eq!(redis.command(&["GET", "number"]).unwrap(), number);
    }
    let bad = RedisOptions { extra: vec!["no-such-option 1".into()], ..RedisOptions::default() };
    assert!(bed.redis_many(2, bad).is_err());
}

#[test]
fn tls_the_socket_and_the_port_all_lead_to_the_user_and_the_database() {
    let bed = Bed::start().unwrap();
    let user = Some("shop".to_owned());
    let redis = bed.redis(RedisOptions { user, database: 3, tls: true, ..Default::default() });
    let redis = redis.unwrap();
    let ca = redis.ca_path().unwrap().to_str().unwrap();
    let tls_url = redis.tls_url().unwrap();
    let (path, query) =
        redis.unix_url().strip_prefix("redis+unix://").unwrap().split_once('?').unwrap();
    let password = query.strip_prefix("db=3&user=shop&pass=").unwrap();
    let ways = [
        vec!["-u", redis.url()],
        vec!["-u", tls_url, "--cacert", ca],
        vec!["-s", path, "-n", "3", "--user", "shop", "--pass", password],
    ];
    for way in ways {
        let (succeeded, info) =
            run("redis-cli", &[&way, &["--no-auth-warning", "CLIENT", "INFO"][..]].concat());
        assert!(succeeded && info.contains(" db=3 ") && info.contains(" user=shop "), "{info}");
    }
    assert!(redis.command(&["CLIENT", "INFO"]).unwrap().contains(" user=default "));
    let (_, info) = run("redis-cli", &["-s", path, "PING"]);
    assert!(info.contains("NOAUTH"), "{info}");
}

#[test]
fn the_certificate_is_for_this_address_and_only_its_authority_vouches_for_it() {
    let bed = Bed::start().unwrap();
    let redis = bed.redis(RedisOptions { tls: true, ..RedisOptions::default() }).unwrap();
    let address = redis.tls_url().unwrap().split(['@', '/']).rev().nth(1).unwrap();
    let connect = |more: &[&str]| {
        let args = ["s_client", "-brief", "-verify_return_error", "-connect", address];
        run("openssl", &[&args, more].concat())
    };
    let ca = redis.ca_path().unwrap().to_str().unwrap();
    let (succeeded, said) = connect(&["-CAfile", ca, "-verify_ip", "127.0.0.1"]);
    assert!(succeeded && said.contains("Verification: OK"), "{said}");
    assert!(!connect(&["-CAfile", ca, "-verify_ip", "127.0.0.2"]).0);
    assert!(!connect(&["-verify_ip", "127.0.0.1"]).0);
    assert_eq!(Path::new(ca).parent(), Some(bed.dir()));
    let plain = bed.redis(RedisOptions::default()).unwrap();
    assert_eq!((plain.tls_url(), plain.ca_path()), (None, None));
}

#[test]
fn a_clock_jumps_both_ways_and_keys_expire_by_it() {
    let bed = Bed::start().unwrap();
    let redis = bed.redis(RedisOptions { clock: true, ..RedisOptions::default() }).unwrap();
    let other = bed.redis(RedisOptions { clock: true, ..RedisOptions::default() }).unwrap();
    for offset in [0, 60_000, -60_000, 1, -1_999, 0] {
        redis.jump_clock(offset).unwrap();
        assert!(is_ahead_by(&redis, offset), "{:?} instead of {offset}", clock_offset(&redis));
    }
    redis.command(&["SET", "lease", "mine", "PX", "50000"]).unwrap();
    // It has 20 s left, or what of them the machine has not stood still.
    redis.jump_clock(30_000).unwrap();
    assert_eq!(redis.command(&["GET", "lease"]).unwrap(), "mine");
    redis.jump_clock(51_000).unwrap();
    assert_eq!(redis.command(&["GET", "lease"]).unwrap(), "");
    redis.restart().unwrap();
    assert!(is_ahead_by(&redis, 51_000), "{:?}", clock_offset(&redis));
    assert!(is_ahead_by(&other, 0), "{:?}", clock_offset(&other));
}

#[test]
fn a_clock_that_jumps_does_not_hold_up_the_servers_own_rounds() {
    let bed = Bed::start().unwrap();
    let redis = bed.redis(RedisOptions { clock: true, ..RedisOptions::default() }).unwrap();
    for offset in [-3_600_000, 3_600_000] {
        redis.jump_clock(offset).unwrap();
        redis.command(&["SET", "k", "v", "PX", "50"]).unwrap();
        // No client asks for the key: the server looks for it, by the monotonic clock.
        let size = || redis.command(&["DBSIZE"]).unwrap();
        await_that("the end of the key", Duration::from_secs(2), || size() == "0");
    }
}

#[test]
fn a_clock_that_was_not_asked_for_cannot_jump() {
    let bed = Bed::start().unwrap();
    let redis = bed.redis(RedisOptions::default()).unwrap();
    let error = redis.jump_clock(1).unwrap_err().to_string();
    assert!(error.starts_with("redis was started without `clock: true`\n"), "{error}");
}

#[test]
fn a_stalled_disk_delays_only_commands_that_wait_for_it() {
    let bed = Bed::start().unwrap();
    let options = RedisOptions { appendonly: true, disk: true, ..RedisOptions::default() };
    let redis = bed.redis(options).unwrap();
    redis.stall_disk(true).unwrap();
    redis.command(&["SET", "a", "1"]).expect_err("it is not safe yet");
    redis.stall_disk(false).unwrap();
    assert_eq!(redis.command(&["GET", "a"]).unwrap().trim(), "1");

    let redis = bed.redis(RedisOptions { disk: true, ..RedisOptions::default() }).unwrap();
    redis.stall_disk(true).unwrap();
    redis.command(&["SET", "a", "1"]).unwrap();

    let refused = bed.redis(RedisOptions::default()).unwrap().stall_disk(true).unwrap_err();
    assert!(refused.to_string().contains("was started without `disk: true`"), "{refused}");
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space_and_no_read() {
    let bed = Bed::start().unwrap();
    let extra = vec!["appendfsync everysec".to_owned()];
    let options = RedisOptions { appendonly: true, disk_space: true, extra, ..Default::default() };
    let redis = bed.redis(options).unwrap();
    redis.command(&["SET", "a", "1"]).unwrap();
    redis.fill_disk(true).unwrap();
    let set = || redis.command(&["SET", "b", "1"]);
    await_that("a refusal", WRITTEN_WITHIN, || set().is_err());
    let refused = set().unwrap_err().to_string();
    assert!(refused.contains("MISCONF") && refused.contains("No space left"), "{refused}");
    assert!(redis.writes_without_space().unwrap() > 0);
    assert_eq!(redis.command(&["GET", "a"]).unwrap().trim(), "1");
    redis.fill_disk(false).unwrap();
    await_that("a write", WRITTEN_WITHIN, || set().is_ok());
    redis.restart().unwrap();
    assert_eq!(redis.command(&["GET", "b"]).unwrap().trim(), "1");
}

#[test]
fn evicted_keys_are_reported_by_name_each_once() {
    let bed = Bed::start().unwrap();
    let redis = bed.redis(RedisOptions::default()).unwrap();
    redis.command(&["SET", "short", "x", "PX", "60000"]).unwrap();
    redis.command(&["SET", "long", "x", "PX", "6000000"]).unwrap();
    let mut evictions = Evictions::of(&redis, 0).unwrap();
    assert_eq!(evictions.since_last().unwrap(), Vec::<String>::new());
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]).unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    // It evicts at the next command that may need memory, or by itself before that.
    let _refused = redis.command(&["SET", "another", "x"]);
    await_that("both are evicted", Duration::from_secs(10), || {
        redis.command(&["EXISTS", "short", "long"]).unwrap() == "0"
    });
    assert_eq!(evictions.since_last().unwrap(), ["short", "long"], "in one answer");
    assert_eq!(evictions.since_last().unwrap(), Vec::<String>::new());
}
