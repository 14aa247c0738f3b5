//! Keys of locks that no holder will ever free: what purchases are told, and what operators are.

use std::fs;

use testbed::Replica;

use crate::breakable::blocking;
use crate::caller::Caller;
use crate::redis_side;
use crate::replicas::spec;
use crate::support::{Answer, Place, client, servers, token};
use seckill::domain::Role;

const USER: u64 = 7;

/// A replica with that lock, at a place of its own, and a voucher that it sells.
struct Sale {
    replica: Replica,
    place: Place,
    voucher: String,
}

impl Sale {
    async fn start(kind: &str) -> Self {
        let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
        let flags = ["--lock", kind, "--lock-wait-ms", "100"];
        let name = format!("stuck-{kind}");
        let replica = blocking(|| servers().bed.replica(spec(&place, &name, &flags)));
        let voucher = Caller::new(replica.base_url()).voucher(10).await;
        Self { replica, place, voucher }
    }

    /// The user's purchase, as the request with that id.
    async fn buy(&self, request: &str) -> Answer {
        let (url, voucher) = (self.replica.base_url(), &self.voucher);
        let purchase = client().post(format!("{url}/api/vouchers/{voucher}/orders"));
        let purchase = purchase.bearer_auth(token(USER, Role::Buyer));
        Answer::of(purchase.header("x-request-id", request).send().await.expect("an answer")).await
    }

    async fn command(&self, words: &[&str]) {
        let mut redis = redis_side::connect(&self.place.redis_url).await;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.exec_async(&mut redis).await.expect("an answer");
    }

    /// The lines about the lock of the user's purchases.
    fn lines(&self) -> Vec<String> {
        let log = fs::read_to_string(self.replica.log_path()).expect("a log");
        let about = |line: &&str| line.contains("WARN") && line.contains("lock=lock:order:7");
        log.lines().filter(about).map(str::to_owned).collect()
    }

    /// How many waits have ended at a stuck key.
    async fn stuck(&self, reason: &str) -> u64 {
        let url = format!("{}/metrics", self.replica.base_url());
        let page = client().get(url).send().await.expect("an answer").text().await.expect("a page");
        let reason = format!("reason=\"{reason}\"");
        let is_it = |line: &&str| {
            line.starts_with("distlock_stuck_total{")
                && line.contains(&reason)
                && !line.contains("} 0")
        };
        let line = page.lines().find(is_it).unwrap_or_default();
        line.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}

/// Buys twice while the key is as the command leaves it, and once more when it is deleted.
async fn story(kind: &str, damage: &[&str], reason: &str, refused: impl Fn(&Answer)) {
    let sale = Sale::start(kind).await;
    sale.command(damage).await;
    for request in ["first-request", "second-request"] {
        refused(&sale.buy(request).await);
    }
    let lines = sale.lines();
    assert_eq!(lines.len(), 1, "{kind}: one line a key and minute: {lines:#?}");
    assert!(lines[0].contains("id=first-request"), "{kind}: {}", lines[0]);
    assert_eq!(sale.stuck(reason).await, 2, "{kind}");
    sale.command(&["DEL", damage[1]]).await;
    sale.buy("third-request").await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_key_of_another_type_is_a_definite_503_and_one_warning_with_key_and_request() {
    for (kind, damage) in [
        ("redisson", ["SET", "lock:order:7", "damaged"]),
        ("getset-timestamp", ["SET", "lock:order:7", "damaged"]),
        ("fair", ["SET", "distlock_fair_queue:{lock:order:7}", "damaged"]),
        ("read-write", ["SET", "distlock_rw_write:{lock:order:7}", "damaged"]),
    ] {
        story(kind, &damage, "wrong_type", |answer| {
            assert_eq!(answer.problem(503), "dependency_unavailable", "{kind}");
            assert_eq!(answer.body["executed"], false, "{kind}: {}", answer.body);
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_key_without_expiry_is_a_409_and_one_warning_with_key_and_request() {
    for (kind, damage) in [
        ("redisson", &["HSET", "lock:order:7", "stale-owner", "1"][..]),
        ("lua-release", &["SET", "lock:order:7", "stale-owner"]),
        ("set-nx", &["HSET", "lock:order:7", "stale-owner", "1"]),
    ] {
        story(kind, damage, "no_expiry", |answer| {
            assert_eq!(answer.problem(409), "order_in_progress", "{kind}");
        })
        .await;
    }
}
