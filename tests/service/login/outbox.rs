//! The outbox of login codes: opened at the start, watched, and closed to others.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{Action, Command, Replica, ReplicaSpec, Times};
use tokio::io::AsyncWriteExt;

use crate::breakable::readiness;
use crate::caller::Caller;
use crate::fleet::SECKILL;
use crate::support::{Answer, Place, SECRET, eventually, servers};
use crate::wire;

const PHONE: &str = "13800000001";
const REASON: &str = "login codes cannot be written";

fn spec(place: &Place, outbox: &Path) -> ReplicaSpec {
    ReplicaSpec::new("outbox", SECKILL)
        .args(["serve", "--bind", "127.0.0.1:0", "--drain-delay-ms", "0"])
        .env("DATABASE_URL", &place.database_url)
        .env("REDIS_URL", &place.redis_url)
        .env("REDIS_TIMEOUT_MS", "10000")
        .env("JWT_SECRET", SECRET)
        .env("LOGIN_CODE_OUTBOX", outbox.to_string_lossy())
}

async fn start(place: &Place, outbox: &Path) -> testbed::Result<Replica> {
    let spec = spec(place, outbox);
    tokio::task::spawn_blocking(|| servers().bed.replica(spec)).await.expect("no panic")
}

async fn fresh() -> Place {
    tokio::task::spawn_blocking(Place::fresh).await.expect("a place")
}

async fn ask(replica: &Replica) -> Answer {
    let caller = Caller::new(replica.base_url());
    let body = json!({"phone": PHONE}).to_string();
    caller.send(caller.raw((Method::POST, "/api/login/codes"), body)).await
}

/// The codes in the outbox, oldest first.
fn codes(outbox: &Path) -> Vec<String> {
    let text = fs::read_to_string(outbox).expect("the outbox");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.map(|line| line["login_code"].as_str().expect("a code").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_outbox_uses_up_no_codes_and_makes_the_replica_not_ready_until_it_is_whole() {
    let (place, folder) = (fresh().await, TempDir::new().unwrap());
    let outbox = folder.path().join("codes");
    let replica = start(&place, &outbox).await.expect("a replica");
    let url = replica.base_url();
    assert!(readiness(url).await.0);
    ask(&replica).await.expect(202);

    // The first may be asked for before the replica has noticed.
    fs::remove_file(&outbox).unwrap();
    fs::create_dir(&outbox).unwrap();
    for _ in 0..20 {
        let refused = ask(&replica).await;
        assert_eq!(refused.problem(503), "login_unavailable");
    }
    eventually("it is not ready", async || {
        let (ready, reasons) = readiness(url).await;
        !ready && reasons.contains(REASON)
    })
    .await;

    fs::remove_dir(&outbox).unwrap();
    eventually("it is ready again", async || readiness(url).await.0).await;
    // Of six codes one is counted.
    let mut sent = Value::Null;
    for _ in 0..5 {
        sent = ask(&replica).await.expect(202);
    }
    assert_eq!(ask(&replica).await.problem(429), "too_many_codes");
    let codes = codes(&outbox);
    assert_eq!(codes.len(), 5);
    let caller = Caller::new(url);
    let login = json!({"phone": PHONE, "challenge": sent["challenge"], "code": codes[4]});
    caller.send(caller.raw((Method::POST, "/api/login"), login.to_string())).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_that_cannot_be_opened_is_an_error_at_the_start() {
    let (place, folder) = (fresh().await, TempDir::new().unwrap());
    for outbox in [folder.path().to_owned(), folder.path().join("no/such/folder")] {
        let refused = start(&place, &outbox).await.expect_err("it refuses to start").to_string();
        assert!(refused.contains("cannot open LOGIN_CODE_OUTBOX for writing"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_that_others_can_read_is_closed_to_them() {
    let (place, folder) = (fresh().await, TempDir::new().unwrap());
    let outbox = folder.path().join("codes");
    let mode = || fs::metadata(&outbox).unwrap().permissions().mode() & 0o777;
    fs::write(&outbox, "").unwrap();
    fs::set_permissions(&outbox, Permissions::from_mode(0o644)).unwrap();
    let replica = start(&place, &outbox).await.expect("a replica");
    assert_eq!(mode(), 0o600, "before a code is in it");
    // A gateway that makes a new one while the replica runs.
    fs::set_permissions(&outbox, Permissions::from_mode(0o666)).unwrap();
    ask(&replica).await.expect(202);
    assert_eq!((mode(), codes(&outbox).len()), (0o600, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_whose_client_hangs_up_is_delivered_all_the_same() {
    let (place, folder) = (fresh().await, TempDir::new().unwrap());
    let outbox = folder.path().join("codes");
    let (proxy, through) = place.redis_through_proxy();
    let replica = start(&through, &outbox).await.expect("a replica");
    let issuing = Command::redis("EVALSHA").containing("login:codes:");
    let held = proxy.arm(issuing, Action::HoldAnswer, Times::Next(1));
    let body = json!({"phone": PHONE}).to_string();
    let request = format!(
        "POST /api/login/codes HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = wire::connect(replica.base_url()).await;
    client.write_all(request.as_bytes()).await.expect("sent");
    eventually("the code is issued", async || held.matched() == 1).await;
    drop(client);
    // By the time that these are answered the replica has seen the client go.
    for _ in 0..3 {
        assert!(readiness(replica.base_url()).await.0);
    }
    held.release();
    eventually("it is delivered", async || codes(&outbox).len() == 1).await;
}
