//! The rest of an order's life: payment, cancellation, time-out, and requests that are repeated.

mod callback;
mod charges;
mod keys;
mod lost;
mod races;
mod settle;
mod storm;
mod time_out;

use reqwest::Method;
use seckill::domain::Role;
use serde_json::Value;

use crate::support::{Answer, Service, client, token};

/// A request of that user without a body, with a key if one is given.
pub(crate) async fn post(url: &str, path: &str, user: u64, key: Option<&str>) -> Answer {
    let mut request = client().request(Method::POST, format!("{url}{path}"));
    request = request.bearer_auth(token(user, Role::Buyer));
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    Answer::of(request.send().await.expect("an answer")).await
}

pub(crate) fn id(order: &Value) -> &str {
    order["order"]["id"].as_str().expect("an order's id")
}

impl Service {
    /// Orders the voucher as that user; returns the order's id.
    pub(crate) async fn order(&self, voucher: &str, user: u64) -> String {
        id(&self.buy(voucher, user).await.expect(201)).to_owned()
    }

    pub(crate) async fn pay(&self, order: &str, user: u64) -> Answer {
        post(&self.url, &format!("/api/orders/{order}/pay"), user, None).await
    }

    pub(crate) async fn cancel(&self, order: &str, user: u64) -> Answer {
        post(&self.url, &format!("/api/orders/{order}/cancel"), user, None).await
    }

    /// The order as its user sees it.
    pub(crate) async fn look(&self, order: &str, user: u64) -> Value {
        let path = format!("/api/orders/{order}");
        self.get(&path, &token(user, Role::Buyer)).await.expect(200)["order"].clone()
    }

    /// Orders, cancelled orders and units left of a voucher whose books add up.
    pub(crate) async fn add_up(&self, voucher: &str) -> (i64, i64, i64) {
        let audit = self.audit(voucher).await;
        assert_eq!(audit["consistent"], true, "{audit}");
        let figure = |name: &str| audit[name].as_i64().expect("a number");
        (figure("orders"), figure("cancelled"), figure("stock_left"))
    }
}
