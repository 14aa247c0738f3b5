//! Starting well: in time, from the right settings, and to a clean end.

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use testbed::{RedisOptions, Replica, ReplicaSpec};

use super::{env, run};
use crate::caller::Caller;
use crate::fleet::{SECKILL, fleet};
use crate::redis_side::connect;
use crate::support::{Place, servers};

/// A replica at that place; `127.0.0.1:0` in the arguments becomes a free port.
fn start(place: &Place, args: &[&str], more: &[(&str, &str)]) -> Replica {
    let spec = ReplicaSpec::new("starts", SECKILL).args(["serve"]).args(args.iter().copied());
    let timeout = ("REDIS_TIMEOUT_MS", place.redis_timeout_ms());
    let settings = env(place).into_iter().chain([timeout]).chain(more.iter().copied());
    let spec = settings.fold(spec, |spec, (key, value)| spec.env(key, value));
    servers().bed.replica(spec).expect("a replica")
}

async fn name(replica: &Replica) -> String {
    let caller = Caller::new(replica.base_url());
    let answer = caller.send(caller.request(Method::GET, "/livez")).await;
    answer.headers["x-replica"].to_str().expect("text").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_start_at_once_on_an_empty_database_all_become_ready() {
    let fleet = fleet().await;
    for (number, replica) in fleet.replicas.iter().enumerate() {
        let caller = Caller::new(replica.base_url());
        let ready = caller.send(caller.request(Method::GET, "/readyz")).await.expect(200);
        assert_eq!(ready["ready"], true);
        assert_eq!(name(replica).await, format!("replica-{}", number + 1));
        let address = replica.addr().to_string();
        run(&["probe", "--address", &address], &[]).fine();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flag_wins_over_the_environment_and_that_over_the_default() {
    let place = Place::fresh();
    let by_default = start(&place, &["--bind", "127.0.0.1:0"], &[]);
    assert_eq!(name(&by_default).await, by_default.addr().to_string());
    let environment = [("REPLICA_ID", "by-environment"), ("BIND", "127.0.0.1:0"), ("PORT", "1")];
    let by_environment = start(&place, &[], &environment);
    assert_eq!(name(&by_environment).await, "by-environment");
    let flags = ["--replica-id", "by-flag", "--bind", "127.0.0.1:0"];
    let elsewhere = [("REPLICA_ID", "by-environment"), ("BIND", "192.0.2.1:1"), ("PORT", "1")];
    let by_flag = start(&place, &flags, &elsewhere);
    assert_eq!(name(&by_flag).await, "by-flag");
    // The flag of the port, too, against the environment's address.
    start(&place, &["--port", "0"], &[("BIND", "192.0.2.1:1"), ("PORT", "1")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_starts_although_its_redis_is_late_with_the_rights() {
    let redis = servers().bed.redis(RedisOptions::default()).expect("a Redis of one's own");
    let place = Place { redis_url: redis.admin_url().to_owned(), ..Place::fresh() };
    let mut connection = connect(&place.redis_url).await;
    // Writes wait, and questions for the right to write: for longer than a later answer may take.
    let mut pause = redis::cmd("CLIENT");
    pause.arg("PAUSE").arg(2000).arg("WRITE").exec_async(&mut connection).await.expect("paused");
    start(&place, &["--bind", "127.0.0.1:0"], &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_says_where_it_listens_logs_lines_of_json_and_ends_well_at_sigterm() {
    let place = Place::fresh();
    run(&["migrate"], &env(&place)[..1]).fine();
    let flags = ["--bind", "127.0.0.1:0", "--drain-delay-ms", "0", "--log-json"];
    let replica = start(&place, &flags, &[("RUST_LOG", "seckill=info")]);
    let status = replica.stop(Duration::from_secs(30)).expect("it ends");
    assert_eq!(status.code(), Some(0));
    let log = std::fs::read_to_string(replica.log_path()).expect("its log");
    let (said, logged): (Vec<_>, Vec<_>) =
        log.lines().partition(|line| line.starts_with("listening"));
    assert_eq!(said, [format!("listening on {}", replica.base_url())]);
    for line in logged {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        assert!(event["level"].is_string() && event["timestamp"].is_string(), "{line}");
    }
    assert!(log.contains("draining"), "{log}");
}
