//! Every way into a Redis: with a user, a password and a database, by TCP, by TLS, by its socket.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use testbed::{Direction, Redis, RedisOptions};

use crate::fleet::SECKILL;
use crate::support::{Place, Service, servers};

const DATABASE: u8 = 3;

fn redis() -> Redis {
    let user = Some("shop".to_owned());
    let options = RedisOptions { user, database: DATABASE, tls: true, ..RedisOptions::default() };
    servers().bed.redis(options).expect("a Redis with TLS")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_cluster_serves_locks_login_codes_and_order_numbers() {
    let cluster = tokio::task::spawn_blocking(|| servers().bed.redis_cluster(3, 0));
    let cluster = cluster.await.expect("no panic").expect("a cluster");
    for kind in ["redisson", "fair", "lua-release"] {
        let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
        let place = Place { redis_url: cluster.url(), ..place };
        let service = Service::start_at(place, &["--lock", kind]).await;
        let voucher = service.voucher(50).await;
        for user in 1..=20 {
            service.buy(&voucher, user).await.expect(201);
        }
        for phone in ["13800000001", "13800000002", "13800000003"] {
            let (codes, login) = ("/api/login/codes", "/api/login");
            let mut tried = json!({"phone": phone});
            let sent = service.call(Method::POST, codes, None, Some(tried.clone())).await;
            let mut sent = sent.expect(202);
            tried["challenge"] = sent["challenge"].take();
            tried["code"] = sent["code"].take();
            service.call(Method::POST, login, None, Some(tried)).await.expect(200);
        }
        service.stop().await;
    }
    let locked = locked(&cluster.url(), &[]);
    assert_eq!(locked.stdout, b"in\n", "{locked:?}");
    cluster.masters()[1].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let place = Place { redis_url: cluster.url(), ..place };
    let refused = crate::support::app(&place, &[]).await.err().expect("one of them may evict");
    assert!(format!("{refused:#}").contains("noeviction"), "{refused:#}");
}

/// How many keys each database has that has any.
fn keyspace(redis: &Redis) -> Vec<String> {
    let info = redis.command(&["INFO", "keyspace"]).expect("the keyspace");
    let databases = info.lines().filter_map(|line| line.trim().split_once(":keys="));
    databases.map(|(name, _)| name.to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_is_reached_by_tcp_by_tls_and_by_its_socket() {
    let redis = tokio::task::spawn_blocking(redis).await.expect("a Redis");
    let ca = redis.ca_path().expect("an authority").to_str().expect("UTF-8").to_owned();
    let tls_url = redis.tls_url().expect("TLS");
    assert!(tls_url.starts_with("rediss://shop:"), "{tls_url}");
    for url in [redis.url(), tls_url, redis.unix_url()] {
        redis.command(&["FLUSHALL"]).expect("empty");
        let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
        let place = Place { redis_url: url.to_owned(), ..place };
        let service = Service::start_at(place, &["--redis-ca-file", &ca]).await;
        let voucher = service.voucher(10).await;
        service.buy(&voucher, 1).await.expect(201);
        service.stop().await;
        assert_eq!(keyspace(&redis), [format!("db{DATABASE}")], "{url}");
    }
}

/// `seckill lock run` with that Redis, and nothing else in its environment but these.
fn locked(url: &str, env: &[(&str, &str)]) -> Output {
    let line = ["lock", "run", "--kind", "lua-release", "--name", "a", "--", "/bin/echo", "in"];
    let mut command = Command::new(SECKILL);
    command.args(line).env_clear().env("REDIS_URL", url).envs(env.iter().copied());
    command.output().expect("the program")
}

#[test]
fn a_redis_without_a_trusted_certificate_is_refused() {
    let redis = redis();
    let url = redis.tls_url().expect("TLS");
    let ca = redis.ca_path().expect("an authority").to_str().expect("UTF-8");
    let other = self::redis();
    let other_ca = other.ca_path().expect("an authority").to_str().expect("UTF-8");
    for env in [[("REDIS_CA_FILE", ca)], [("SSL_CERT_FILE", ca)]] {
        let output = locked(url, &env);
        assert_eq!(output.stdout, b"in\n", "{output:?}");
    }
    for env in [&[][..], &[("REDIS_CA_FILE", other_ca)], &[("SSL_CERT_FILE", other_ca)]] {
        let output = locked(url, env);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(69), &b""[..]), "{output:?}");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(said.contains("cannot connect to REDIS_URL"), "{said}");
        let (login, _) = url.split_once('@').expect("a login");
        assert!(!said.contains(login.rsplit(':').next().expect("a password")), "{said}");
    }
    let plain = url.replace("rediss://", "redis://");
    assert_eq!(locked(&plain, &[]).status.code(), Some(69), "that port speaks TLS only");
    let missing = locked(url, &[("REDIS_CA_FILE", "/no/such/file")]);
    assert_ne!(missing.status.code(), Some(0), "{missing:?}");
}

/// The command takes what the service is told of its Redis.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_replayed_into_the_redis_that_the_service_may_use() {
    let redis = tokio::task::spawn_blocking(redis).await.expect("a Redis");
    let ca = redis.ca_path().expect("an authority").to_str().expect("UTF-8");
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    seckill::store::migrate(&place.database_url, false).await.expect("the schema");
    let replay = |env: &[(&str, &str)]| {
        let nobody = "018bcfe5-687b-7fff-bfff-ffff00000001";
        let mut command = Command::new(SECKILL);
        command.args(["dead-letters", "replay", nobody]).env_clear();
        command.env("DATABASE_URL", &place.database_url);
        command.env("REDIS_URL", redis.tls_url().expect("TLS")).envs(env.iter().copied());
        let output = command.output().expect("the program");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).expect("UTF-8"))
    };
    let (code, said) = replay(&[]);
    assert!(code == Some(2) && said.contains("cannot connect to REDIS_URL"), "{code:?} {said}");
    let (code, said) = replay(&[("REDIS_CA_FILE", ca)]);
    assert!(code == Some(1) && said.contains("no such dead letter"), "{code:?} {said}");
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).expect("it may evict");
    let (code, said) = replay(&[("REDIS_CA_FILE", ca)]);
    assert!(code == Some(2) && said.contains("noeviction"), "{code:?} {said}");
    let (code, said) = replay(&[("REDIS_CA_FILE", ca), ("ALLOW_EVICTION", "true")]);
    assert!(code == Some(1) && said.contains("no such dead letter"), "{code:?} {said}");
}

/// The connection that is half open is the one for locks, login codes and order numbers.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_whose_connection_is_half_open_is_reached_on_another_one() {
    let (proxy, service) = Service::start_through_redis_proxy(&[]).await;
    let voucher = service.voucher(10).await;
    service.buy(&voucher, 1).await.expect(201);
    // Neither side hears anything more, though no side has closed the connection.
    let swallowed = proxy.counts().swallowed_to_server;
    proxy.set_swallowing(Direction::Both, true);
    let deadline = Instant::now() + Duration::from_secs(20);
    while proxy.counts().swallowed_to_server == swallowed {
        assert!(Instant::now() < deadline, "nothing was asked");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.set_swallowing(Direction::Both, false);
    while service.buy(&voucher, 2).await.status != 201 {
        assert!(Instant::now() < deadline, "no purchase");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_starts_when_a_silent_redis_answers_again() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (proxy, through) = place.redis_through_proxy();
    proxy.set_swallowing(Direction::Both, true);
    let starting = tokio::spawn(async move { Service::start_at(through, &[]).await });
    // Two are one try, which then has failed.
    let deadline = Instant::now() + Duration::from_secs(20);
    while proxy.counts().connections < 3 && !starting.is_finished() {
        assert!(Instant::now() < deadline, "it does not try again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.set_swallowing(Direction::Both, false);
    starting.await.expect("it starts").stop().await;
}
