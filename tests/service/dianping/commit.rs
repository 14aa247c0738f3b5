//! A COMMIT whose answer is lost, on hm-dianping's tables.

use reqwest::Method;
use serde_json::Value;
use sqlx::Executor;
use testbed::{Action, Command, Times};

use super::{DianpingService, adopted, connect, data, message, serve};

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_answer_is_resolved_before_the_buyer_is_answered() {
    let place = adopted().await;
    let (proxy, through) = place.database_through_proxy();
    let api = DianpingService { service: serve(through).await };
    let voucher = api.voucher(5).await;
    let token = api.login("13800000002").await;
    let path = format!("/voucher-order/seckill/{voucher}");
    let buy = async || api.call((Method::POST, &path), &token, Value::Null).await;
    let mut database = connect(&place).await;
    let orders = "SELECT id FROM tb_voucher_order";
    let lost = proxy.arm(Command::commit(), Action::CutRequest, Times::Next(1));
    assert_eq!(message(buy().await), "服务器异常");
    assert_eq!(lost.fired(), 1);
    assert!(database.fetch_all(orders).await.expect("a list").is_empty(), "a definite refusal");
    let lost = proxy.arm(Command::commit(), Action::CutAnswer, Times::Next(1));
    let order = data(buy().await);
    assert_eq!(lost.fired(), 1);
    let rows = database.fetch_all(orders).await.expect("a list");
    let ids: Vec<i64> = rows.iter().map(|row| sqlx::Row::get(row, 0)).collect();
    assert_eq!(ids, [order.as_i64().expect("an id")]);
    assert_eq!(message(buy().await), "不能重复下单", "and the lock is free");
}
