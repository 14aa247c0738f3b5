//! The same request many times at once, at several replicas.

use tokio::task::JoinSet;

use super::{id, post};
use crate::support::{Answer, Place, Service};

const REPLICAS: usize = 3;
const TWINS: usize = 12;

async fn replicas(flags: &[&str]) -> Vec<Service> {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        replicas.push(Service::start_at(place.clone(), flags).await);
    }
    replicas
}

/// The request, at all replicas in turn and at once.
async fn storm(replicas: &[Service], path: &str, user: u64) -> Vec<Answer> {
    let mut twins = JoinSet::new();
    for replica in replicas.iter().cycle().take(TWINS) {
        let (url, path) = (replica.url.clone(), path.to_owned());
        twins.spawn(async move { post(&url, &path, user, Some("the-same")).await });
    }
    twins.join_all().await
}

/// All that had an answer had the same one, and all others may ask again in a second.
fn assert_equal(answers: &[Answer], status: u16, what: &str) -> serde_json::Value {
    let told: Vec<_> = answers.iter().filter(|answer| answer.status == status).collect();
    assert!(!told.is_empty(), "{what}: no buyer was told: {answers:?}");
    for answer in answers {
        if answer.status == status {
            assert_eq!(answer.body, told[0].body, "{what}");
        } else {
            let code = answer.problem(409);
            assert!(["request_in_progress", "order_in_progress"].contains(&code), "{what}: {code}");
            assert_eq!(answer.headers["retry-after"], "1", "{what}");
        }
    }
    told[0].body.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_one_key_at_several_replicas_is_one_order_and_one_answer() {
    for (lock, writer) in
        [("redisson", "single"), ("redisson", "grouped"), ("none", "single"), ("none", "grouped")]
    {
        let what = format!("{lock} {writer}");
        let replicas = replicas(&["--lock", lock, "--writer", writer]).await;
        let voucher = replicas[0].voucher(50).await;
        let path = format!("/api/vouchers/{voucher}/orders");
        for user in 1..=5 {
            let bought = assert_equal(&storm(&replicas, &path, user).await, 201, &what);
            for replica in &replicas {
                let again = post(&replica.url, &path, user, Some("the-same")).await;
                assert_eq!(again.expect(201), bought, "{what}");
            }
        }
        assert_eq!(replicas[0].add_up(&voucher).await, (5, 0, 45), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_payments_or_cancellations_with_one_key_is_one_with_one_answer() {
    let replicas = replicas(&[]).await;
    for (action, left) in [("pay", 49), ("cancel", 50)] {
        let voucher = replicas[0].voucher(50).await;
        let order = replicas[0].order(&voucher, 7).await;
        // A key of its own for each of the two: keys are those of a user.
        let user = 7;
        let path = format!("/api/orders/{order}/{action}");
        let mut twins = JoinSet::new();
        for replica in replicas.iter().cycle().take(TWINS) {
            let (url, path, key) = (replica.url.clone(), path.clone(), action);
            twins.spawn(async move { post(&url, &path, user, Some(key)).await });
        }
        let done = assert_equal(&twins.join_all().await, 200, action);
        assert_eq!(id(&done), order);
        assert_eq!(post(&replicas[1].url, &path, user, Some(action)).await.expect(200), done);
        assert_eq!(replicas[0].add_up(&voucher).await.2, left, "{action}");
    }
}
