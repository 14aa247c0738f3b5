//! What the purchase promises.

use std::time::Instant;

use serde_json::Value;
use tokio::task::JoinSet;

use crate::support::{Answer, Service};

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
async fn many_buyers_buy_exactly_the_stock_and_no_user_twice() {
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

/// Microseconds for which a purchase waited for its lock, held it, and was then answered.
fn hold(answer: &Answer) -> Option<[u64; 3]> {
    let parts = answer.headers.get("x-lab-held")?.to_str().ok()?.split('-');
    let parts: Vec<u64> = parts.map(|micros| micros.parse().expect("a number")).collect();
    Some(parts.try_into().expect("three numbers"))
}

#[tokio::test(flavor = "multi_thread")]
async fn only_in_the_laboratory_does_an_answer_have_the_hold_of_its_lock() {
    const WORK_MS: u64 = 30;
    let work = WORK_MS.to_string();
    let service = Service::start(&["--lab", "--guards", "off", "--work-ms", &work]).await;
    let voucher = service.voucher(5).await;
    let asked = Instant::now();
    let bought = service.buy(&voucher, 1).await;
    let all = hold(&bought).expect("it had a lock");
    assert!(bought.status == 201 && all[1] >= WORK_MS * 1000, "{all:?}");
    assert!(u128::from(all.iter().sum::<u64>()) <= asked.elapsed().as_micros(), "{all:?}");
    let refused = service.buy(&voucher, 1).await;
    assert_eq!(refused.problem(409), "already_ordered");
    assert!(hold(&refused).is_some(), "it had a lock, too");
    for flags in [&["--lab", "--lock", "none"][..], &[]] {
        let service = Service::start(flags).await;
        let voucher = service.voucher(5).await;
        let bought = service.buy(&voucher, 1).await;
        assert_eq!((bought.status.as_u16(), hold(&bought)), (201, None), "{flags:?}");
        assert!(!bought.headers.contains_key("x-lab-held"), "{flags:?}");
    }
}
