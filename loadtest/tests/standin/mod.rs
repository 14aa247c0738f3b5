//! A tiny shop in memory that speaks the service's HTTP interface, honestly or with one lie.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What the shop does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Nothing.
    None,
    /// Its first order is acknowledged and not kept.
    LosesOne,
    /// Every request of a user is sold one.
    SellsTwice,
    /// It goes on selling when nothing is left.
    Oversells,
    /// "Sold out" although units are left.
    SoldOutTooEarly,
    /// The refusal of the first user keeps an order all the same.
    RefusesAndKeeps,
    /// The audit knows one order less.
    AuditShort,
    /// The audit knows five units more than the public is shown.
    AuditRich,
    /// Once something is sold, one unit more is shown than is left.
    ShowsTooMuch,
    /// After the first sale the stock is not told.
    HidesStock,
    /// One purchase is carried out and answered by a page of a proxy.
    LosesAnswer,
    /// Some purchases are answered by a page of a proxy and carried out in the seconds after.
    WritesLate,
    /// The voucher is a draft.
    Draft,
    /// Every purchase ends in a page of a proxy.
    Proxied,
    /// No token is accepted.
    Locked,
}

/// Units on sale.
pub(crate) const STOCK: i64 = 10;
/// Purchases that are carried out later, one after the other.
const LATE: u64 = 5;
const LATE_STEP: Duration = Duration::from_millis(900);

struct Shop {
    lie: Lie,
    left: i64,
    next_id: u64,
    /// Orders by user.
    orders: HashMap<u64, Vec<u64>>,
    refused_and_kept: bool,
    /// Orders that are still to be written: when, whose, which.
    late: Vec<(Instant, u64, u64)>,
}

/// Starts the shop; gives its address. It ends with the test's runtime.
pub(crate) async fn open(lie: Lie) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let shop = Arc::new(Mutex::new(Shop {
        lie,
        left: STOCK,
        next_id: 1000,
        orders: HashMap::new(),
        refused_and_kept: false,
        late: Vec::new(),
    }));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let shop = shop.clone();
            let service = service_fn(move |request| {
                let answer = shop.lock().expect("no panic before").answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    format!("http://{address}")
}

fn reply(status: u16, body: &Value) -> Response<Full<Bytes>> {
    let kind = if status < 400 { "application/json" } else { "application/problem+json" };
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, kind)
        .header("x-replica", "standin")
        .body(Full::new(Bytes::from(body.to_string())))
        .expect("a response")
}

fn refusal(status: u16, code: &str) -> Response<Full<Bytes>> {
    reply(status, &json!({"status": status, "code": code}))
}

/// What a proxy answers, which says nothing of what was done.
fn page() -> Response<Full<Bytes>> {
    let page = Full::new(Bytes::from_static(b"<html>503</html>"));
    Response::builder().status(503).body(page).expect("a response")
}

impl Shop {
    fn answer(&mut self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        self.write_what_is_due();
        let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let user = token.and_then(|token| token.strip_prefix("Bearer t")?.parse::<u64>().ok());
        let path = request.uri().path();
        match (request.method(), path, user) {
            (&Method::GET, "/api/vouchers/1", _) => self.voucher(),
            (_, _, Some(_)) if self.lie == Lie::Locked => refusal(401, "unauthorized"),
            (_, _, None) => refusal(401, "unauthorized"),
            (&Method::GET, "/api/me", Some(user)) => reply(200, &json!({"id": user.to_string()})),
            (&Method::POST, "/api/vouchers/1/orders", Some(user)) => self.sell(user),
            (&Method::GET, "/api/orders", Some(user)) => self.list(user),
            (&Method::GET, "/api/admin/vouchers/1/audit", Some(_)) => self.audit(),
            (&Method::GET, _, Some(user)) => self.one(path, user),
            _ => refusal(404, "not_found"),
        }
    }

    fn write_what_is_due(&mut self) {
        let now = Instant::now();
        for (_, user, id) in self.late.extract_if(.., |(due, ..)| *due <= now) {
            self.orders.entry(user).or_default().push(id);
        }
    }

    fn voucher(&self) -> Response<Full<Bytes>> {
        let status = if self.lie == Lie::Draft { "draft" } else { "on_sale" };
        let stock = match self.lie {
            Lie::ShowsTooMuch if self.left < STOCK => Some(self.left + 1),
            Lie::HidesStock if self.left < STOCK => None,
            _ => Some(self.left),
        };
        reply(
            200,
            &json!({"voucher": {
                "id": "1", "title": "Tea", "status": status, "phase": "open", "stock": stock
            }}),
        )
    }

    fn sell(&mut self, user: u64) -> Response<Full<Bytes>> {
        let lie = self.lie;
        if lie == Lie::Proxied {
            return page();
        }
        if lie == Lie::Draft {
            return refusal(409, "not_on_sale");
        }
        if lie == Lie::SoldOutTooEarly && self.left <= STOCK / 2 {
            return refusal(409, "sold_out");
        }
        let is_on_its_way = self.late.iter().any(|(_, whose, _)| *whose == user);
        if is_on_its_way || self.orders.contains_key(&user) && lie != Lie::SellsTwice {
            return refusal(409, "already_ordered");
        }
        if self.left <= 0 && lie != Lie::Oversells {
            return refusal(409, "sold_out");
        }
        self.left -= 1;
        self.next_id += 1;
        let id = self.next_id;
        if lie == Lie::WritesLate && id <= 1000 + LATE {
            let after = LATE_STEP * u32::try_from(id - 1000).expect("few");
            self.late.push((Instant::now() + after, user, id));
            return page();
        }
        if lie != Lie::LosesOne || id != 1001 {
            self.orders.entry(user).or_default().push(id);
        }
        if lie == Lie::RefusesAndKeeps && !self.refused_and_kept {
            self.refused_and_kept = true;
            return refusal(409, "order_in_progress");
        }
        if lie == Lie::LosesAnswer && id == 1002 {
            return page();
        }
        reply(201, &json!({"order": order(id, user)}))
    }

    fn list(&self, user: u64) -> Response<Full<Bytes>> {
        let ids = self.orders.get(&user).map_or(&[][..], Vec::as_slice);
        let orders: Vec<Value> = ids.iter().map(|id| order(*id, user)).collect();
        reply(200, &json!({"orders": orders, "next_cursor": null}))
    }

    fn one(&self, path: &str, user: u64) -> Response<Full<Bytes>> {
        let id = path.strip_prefix("/api/orders/").and_then(|id| id.parse::<u64>().ok());
        match id.filter(|id| self.orders.get(&user).is_some_and(|ids| ids.contains(id))) {
            Some(id) => reply(200, &json!({"order": order(id, user)})),
            None => refusal(404, "order_not_found"),
        }
    }

    fn audit(&self) -> Response<Full<Bytes>> {
        let mut orders = i64::try_from(self.orders.values().flatten().count()).expect("few");
        if self.lie == Lie::AuditShort {
            orders = (orders - 1).max(0);
        }
        let more = if self.lie == Lie::AuditRich { 5 } else { 0 };
        reply(
            200,
            &json!({
                "voucher_id": "1",
                "initial_stock": STOCK + more,
                "stock_left": self.left + more,
                "orders": orders,
                "distinct_users": self.orders.len(),
                "duplicate_users": self.orders.values().filter(|ids| ids.len() > 1).count(),
                "oversold": (orders - STOCK).max(0),
                "consistent": true,
                "tables": {"orders": "o", "stock": "s", "grants": "g"},
            }),
        )
    }
}

fn order(id: u64, user: u64) -> Value {
    json!({"id": id.to_string(), "voucher_id": "1", "user_id": user.to_string()})
}
