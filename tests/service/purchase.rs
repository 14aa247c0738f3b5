//! What the purchase promises.

use serde_json::Value;
use tokio::task::JoinSet;

use crate::support::Service;

/// All pairs of users and requests at once; how often each code was answered.
async fn rush(service: &'static Service, voucher: &str, users: u64, each: u64) -> Vec<String> {
    let mut tasks = JoinSet::new();
    for user in 1..=users {
        for _ in 0..each {
            let voucher = voucher.to_owned();
            tasks.spawn(async move {
                let answer = service.buy(&voucher, user).await;
                answer.body["code"].as_str().unwrap_or("bought").to_owned()
            });
        }
    }
    tasks.join_all().await
}

async fn leaked(flags: &[&str]) -> &'static Service {
    Box::leak(Box::new(Service::start(flags).await))
}

fn count(codes: &[String], code: &str) -> usize {
    codes.iter().filter(|c| *c == code).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_buys_exactly_the_stock_and_nobody_twice() {
    for lock in ["none", "local", "redisson"] {
        let service = leaked(&["--lock", lock]).await;
        let voucher = service.voucher(30).await;
        let codes = rush(service, &voucher, 50, 4).await;
        assert_eq!(count(&codes, "bought"), 30, "{lock}: {codes:?}");
        let audit = service.audit(&voucher).await;
        assert_eq!(audit["orders"], 30, "{lock}");
        assert_eq!(audit["stock_left"], 0, "{lock}");
        assert_eq!(audit["duplicate_users"], 0, "{lock}");
        assert_eq!(audit["consistent"], Value::Bool(true), "{lock}");
        assert_eq!(audit["tables"]["orders"], "orders");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_guards_only_a_lock_keeps_one_user_from_buying_twice() {
    for (lock, holds) in [("none", false), ("local", true), ("redisson", true)] {
        let flags = ["--lab", "--guards", "off", "--work-ms", "5", "--lock", lock];
        let service = leaked(&flags).await;
        let voucher = service.voucher(1000).await;
        let codes = rush(service, &voucher, 20, 5).await;
        let audit = service.audit(&voucher).await;
        assert_eq!(audit["duplicate_users"] == 0, holds, "{lock}: {audit} {codes:?}");
        assert_eq!(audit["tables"]["orders"], "lab_orders");
    }
}
