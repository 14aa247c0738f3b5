//! One user, many requests at once, over several replicas.

use std::collections::BTreeSet;
use std::sync::Arc;

use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use seckill::domain::Role;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::caller::{Caller, assert_problem, bearer};
use crate::crowd::Books;
use crate::fleet::fleet;
use crate::support::token;

const PARALLEL_ORDERS: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_parallel_orders_of_one_user_over_three_replicas_are_one_row() {
    let fleet = fleet().await;
    let caller: &Caller = Box::leak(Box::new(Caller::new(fleet.proxy.url())));
    for user in 9001..=9005 {
        let voucher = caller.voucher(PARALLEL_ORDERS.try_into().unwrap()).await;
        let start = Arc::new(Barrier::new(PARALLEL_ORDERS));
        let mut burst = JoinSet::new();
        for _ in 0..PARALLEL_ORDERS {
            let path = format!("/api/vouchers/{voucher}/orders");
            let start = Arc::clone(&start);
            burst.spawn(async move {
                let request = caller.request(Method::POST, &path);
                let request = request.header(AUTHORIZATION, bearer(&token(user, Role::Buyer)));
                start.wait().await;
                caller.send(request).await
            });
        }
        let answers = burst.join_all().await;
        let bought: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
        assert_eq!(bought.len(), 1, "user {user}");
        for answer in answers.iter().filter(|answer| answer.status != 201) {
            assert!(["already_ordered", "order_in_progress"].contains(&answer.problem(409)));
            assert_problem("a purchase", answer);
        }
        let replicas: BTreeSet<_> = answers.iter().map(|a| &a.headers["x-replica"]).collect();
        assert_eq!(replicas.len(), 3, "{replicas:?}");
        let books = Books::read(&fleet.place.database_url, &voucher).await;
        assert_eq!(books.of(user).len(), 1, "user {user}");
        books.add_up_to(PARALLEL_ORDERS.try_into().unwrap());
    }
}
