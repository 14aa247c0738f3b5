//! Calls besides the purchase, with the parts of the service's answers that are needed.

use std::time::Duration;

use http::{HeaderValue, Method};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::Connection;
use crate::history::final_state::{Audit, OrderRow};
use crate::moment::rfc3339;
use crate::outcome::Problem;
use crate::request;

/// Orders asked for in one page.
const PAGE: usize = 100;
/// Pages read of one user's orders; a user with more than this is beyond what a load can make.
const MAX_PAGES: usize = 50;
/// How often `retry!` makes a call, with 8.4 s of pauses: on a busy machine new replicas may lose
/// their servers for a moment.
pub const MAX_TRIES: u32 = 8;
/// The pause of `retry!` after the first try; each further one is longer by as much.
pub const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// Why a call did not give what was asked for: a clause without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// Nothing came back.
    #[error("{call}: {fault}")]
    Unreachable {
        /// Method and path.
        call: String,
        /// What went wrong.
        fault: String,
    },
    /// Another status than the expected one.
    #[error("{call} was answered with {status}{code}")]
    Status {
        /// Method and path.
        call: String,
        /// The status that came.
        status: u16,
        /// The problem's code with a space before it, or nothing.
        code: String,
    },
    /// A body that is not what the API promises.
    #[error("{call} was answered with something else than promised: {fault}")]
    Shape {
        /// Method and path.
        call: String,
        /// What the parser says.
        fault: String,
    },
}

impl ApiError {
    /// Whether the same call may succeed a moment later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Status { status: 429 | 500.., .. })
    }
}

/// Makes a call again while the service asks for patience or cannot be reached: a deployment that
/// starts, or has just been under full load, may refuse one. At most [`MAX_TRIES`] times.
#[macro_export]
macro_rules! retry {
    ($call:expr) => {{
        let mut tries = 1;
        loop {
            match $call.await {
                Err(error) if tries < $crate::api::MAX_TRIES && error.is_transient() => {
                    tokio::time::sleep($crate::api::RETRY_PAUSE * tries).await;
                    tries += 1;
                }
                result => break result,
            }
        }
    }};
}

/// A voucher as the public sees it.
#[derive(Debug, Clone, Deserialize)]
pub struct Voucher {
    /// Its id.
    pub id: String,
    /// Its name.
    pub title: String,
    /// `draft` or `on_sale`.
    pub status: String,
    /// `not_started`, `open` or `ended`.
    pub phase: String,
    /// Units left, if the service tells.
    pub stock: Option<i64>,
}

#[derive(Deserialize)]
struct VoucherAnswer {
    voucher: Voucher,
}

#[derive(Deserialize)]
struct UserAnswer {
    id: String,
}

#[derive(Deserialize)]
struct ListedOrder {
    id: String,
    voucher_id: String,
    user_id: String,
    /// Absent where orders cannot be cancelled.
    #[serde(default)]
    status: String,
}

#[derive(Deserialize)]
struct OrderAnswer {
    order: ListedOrder,
}

#[derive(Deserialize)]
struct OrdersAnswer {
    orders: Vec<ListedOrder>,
    next_cursor: Option<String>,
}

/// What one call asks for.
struct ApiRequest<'a> {
    method: Method,
    path: &'a str,
    authorization: Option<&'a HeaderValue>,
    body: Option<String>,
    expected: u16,
}

impl<'a> ApiRequest<'a> {
    fn get(path: &'a str, authorization: Option<&'a HeaderValue>) -> Self {
        Self { method: Method::GET, path, authorization, body: None, expected: 200 }
    }

    async fn send<T: DeserializeOwned>(self, connection: &mut Connection) -> Result<T, ApiError> {
        let (call, body) = self.body_of_answer(connection).await?;
        serde_json::from_slice(body)
            .map_err(|error| ApiError::Shape { call, fault: error.to_string() })
    }

    /// The status, where a refusal is an answer as well.
    async fn status(self, connection: &mut Connection) -> Result<u16, ApiError> {
        let expected = self.expected;
        match self.body_of_answer(connection).await {
            Ok(_) => Ok(expected),
            Err(ApiError::Status { status, .. }) => Ok(status),
            Err(error) => Err(error),
        }
    }

    /// What was called, and the body of the answer that was expected.
    async fn body_of_answer(
        self,
        connection: &mut Connection,
    ) -> Result<(String, &[u8]), ApiError> {
        let call = format!("{} {}{}", self.method, connection.target(), self.path);
        let unreachable = |fault: String| ApiError::Unreachable { call: call.clone(), fault };
        let head = format!("{} {} HTTP/1.1", self.method, self.path);
        request::write_call(connection, &head, self.authorization, self.body.as_deref());
        let answer = connection.call().await.map_err(|error| unreachable(error.to_string()))?;
        if answer.status != self.expected {
            let code = serde_json::from_slice::<Problem>(answer.body)
                .map_or_else(|_| String::new(), |problem| format!(" {}", problem.code));
            return Err(ApiError::Status { call, status: answer.status, code });
        }
        Ok((call, answer.body))
    }
}

/// What a replica measured, in the text format of Prometheus.
pub async fn metrics(connection: &mut Connection) -> Result<String, ApiError> {
    let (call, body) = ApiRequest::get("/metrics", None).body_of_answer(connection).await?;
    String::from_utf8(body.to_vec())
        .map_err(|error| ApiError::Shape { call, fault: error.to_string() })
}

/// Arms failpoints of one replica, as `--failpoints` does; 404 if it has none.
pub async fn arm_failpoints(connection: &mut Connection, actions: String) -> Result<(), ApiError> {
    let (path, body) = ("/failpoints", Some(actions));
    let ask = ApiRequest { method: Method::PUT, path, authorization: None, body, expected: 200 };
    ask.body_of_answer(connection).await.map(drop)
}

/// The name of the replica that answers on this connection, if one does.
pub async fn replica_name(connection: &mut Connection) -> Option<String> {
    request::write_call(connection, "GET /livez HTTP/1.1", None, None);
    connection.call().await.ok()?.replica.map(str::to_owned)
}

/// Whether the replica on this connection says that it is ready.
pub async fn is_ready(connection: &mut Connection) -> bool {
    request::write_call(connection, "GET /readyz HTTP/1.1", None, None);
    connection.call().await.is_ok_and(|answer| answer.status == 200)
}

/// The id of the user whom the token belongs to.
pub async fn user_id(connection: &mut Connection, token: &HeaderValue) -> Result<String, ApiError> {
    ApiRequest::get("/api/me", Some(token))
        .send::<UserAnswer>(connection)
        .await
        .map(|user_id| user_id.id)
}

/// Reads one voucher as the public sees it.
pub async fn voucher(connection: &mut Connection, id: &str) -> Result<Voucher, ApiError> {
    let path = format!("/api/vouchers/{id}");
    ApiRequest::get(&path, None)
        .send::<VoucherAnswer>(connection)
        .await
        .map(|answer| answer.voucher)
}

/// The service's own account of a voucher.
pub async fn audit(
    connection: &mut Connection,
    admin: &HeaderValue,
    voucher: &str,
) -> Result<Audit, ApiError> {
    let path = format!("/api/admin/vouchers/{voucher}/audit");
    ApiRequest::get(&path, Some(admin)).send(connection).await
}

/// Whether the user can read this order of this voucher; 404 means no.
pub async fn order_exists(
    connection: &mut Connection,
    token: &HeaderValue,
    wanted: (u64, &str),
) -> Result<bool, ApiError> {
    let (id, voucher) = wanted;
    let path = format!("/api/orders/{id}");
    match ApiRequest::get(&path, Some(token)).send::<OrderAnswer>(connection).await {
        Ok(answer) => Ok(answer.order.id == id.to_string() && answer.order.voucher_id == voucher),
        Err(ApiError::Status { status: 404, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// All orders of this voucher that the user can see.
pub async fn orders_of(
    connection: &mut Connection,
    token: &HeaderValue,
    voucher: &str,
) -> Result<Vec<OrderRow>, ApiError> {
    let mut rows = Vec::new();
    let mut path = format!("/api/orders?limit={PAGE}");
    for _ in 0..MAX_PAGES {
        let page: OrdersAnswer = ApiRequest::get(&path, Some(token)).send(connection).await?;
        for order in page.orders.iter().filter(|order| order.voucher_id == voucher) {
            let (id, user_id) = (number(&order.id, &path)?, number(&order.user_id, &path)?);
            let cancelled = order.status == "cancelled";
            rows.push(OrderRow { cancelled, ..OrderRow::new(id, user_id) });
        }
        let Some(cursor) = page.next_cursor else { return Ok(rows) };
        path = format!("/api/orders?limit={PAGE}&cursor={cursor}");
    }
    let fault = format!("more than {MAX_PAGES} pages of orders");
    Err(ApiError::Shape { call: "GET /api/orders".to_owned(), fault })
}

/// An id as a number.
fn number(id: &str, path: &str) -> Result<u64, ApiError> {
    id.parse().map_err(|_| ApiError::Shape {
        call: path.to_owned(),
        fault: format!("the id {id:?} is no number"),
    })
}

/// What a new voucher is like; it is on sale from `starts_at` on.
#[derive(Debug, Clone)]
pub struct NewVoucher {
    /// Its name.
    pub title: String,
    /// What it is for.
    pub description: String,
    /// What is paid, in cents.
    pub price_cents: u64,
    /// What it is worth, in cents.
    pub face_value_cents: u64,
    /// When its sale begins, RFC 3339.
    pub starts_at: String,
    /// When its sale ends, RFC 3339.
    pub ends_at: String,
    /// Units.
    pub stock: u64,
    /// Rows that they are split into.
    pub stock_buckets: u32,
}

impl NewVoucher {
    /// One that is on sale for two hours from now.
    pub fn of_now(stock: u64) -> Self {
        let now = time::OffsetDateTime::now_utc();
        Self {
            title: "100-yuan voucher for 80".to_owned(),
            description: "Sold in one go, first come, first served.".to_owned(),
            price_cents: 8000,
            face_value_cents: 10_000,
            starts_at: rfc3339(now - time::Duration::minutes(1)),
            ends_at: rfc3339(now + time::Duration::hours(2)),
            stock,
            stock_buckets: 1,
        }
    }
}

/// Creates a voucher and puts it on sale; gives its id. Calls are made again as by [`retry!`].
pub async fn put_on_sale(
    connection: &mut Connection,
    admin: &HeaderValue,
    new: &NewVoucher,
) -> Result<u64, ApiError> {
    let mut body = serde_json::json!({
        "title": new.title,
        "description": new.description,
        "price_cents": new.price_cents,
        "face_value_cents": new.face_value_cents,
        "starts_at": new.starts_at,
        "ends_at": new.ends_at,
        "stock": new.stock,
    });
    // The replica in Java does not know the field.
    if new.stock_buckets > 1 {
        body["stock_buckets"] = new.stock_buckets.into();
    }
    let body = body.to_string();
    // An unknown outcome may leave a draft, which is never sold.
    let create = ("/api/admin/vouchers", &body[..], 201);
    let created = retry!(change_voucher(connection, admin, create))?;
    let path = format!("/api/admin/vouchers/{}/on-sale", created.voucher.id);
    let on_sale = retry!(change_voucher(connection, admin, (&path, "{}", 200)))?;
    number(&on_sale.voucher.id, &path)
}

async fn change_voucher(
    connection: &mut Connection,
    admin: &HeaderValue,
    (path, body, expected): (&str, &str, u16),
) -> Result<VoucherAnswer, ApiError> {
    let (authorization, body) = (Some(admin), Some(body.to_owned()));
    ApiRequest { method: Method::POST, path, authorization, body, expected }.send(connection).await
}

/// Asks for a unit of a voucher; the status of the answer.
pub async fn ask_for_unit(
    connection: &mut Connection,
    token: &HeaderValue,
    voucher: u64,
) -> Result<u16, ApiError> {
    let (method, path) = (Method::POST, &format!("/api/vouchers/{voucher}/orders"));
    let ask = ApiRequest { method, path, authorization: Some(token), body: None, expected: 201 };
    ask.status(connection).await
}

/// Asks as a caller that is no admin to add units to a voucher; the status of the answer.
pub async fn add_stock_as(
    connection: &mut Connection,
    authorization: Option<&HeaderValue>,
    (voucher, units): (u64, u32),
) -> Result<u16, ApiError> {
    let path = &format!("/api/admin/vouchers/{voucher}/stock");
    let body = Some(serde_json::json!({ "units": units }).to_string());
    let ask = ApiRequest { method: Method::POST, path, authorization, body, expected: 200 };
    ask.status(connection).await
}

/// Adds units to a voucher.
pub async fn add_stock(
    connection: &mut Connection,
    admin: &HeaderValue,
    (voucher, units): (u64, u32),
) -> Result<(), ApiError> {
    let ask = ApiRequest {
        method: Method::POST,
        path: &format!("/api/admin/vouchers/{voucher}/stock"),
        authorization: Some(admin),
        body: Some(serde_json::json!({ "units": units }).to_string()),
        expected: 200,
    };
    ask.body_of_answer(connection).await.map(drop)
}

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;
