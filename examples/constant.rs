//! A handler that answers a constant: the cost of the cheapest answer.
//!
//! It has the HTTP settings and the allocator of the service. `make bench` compares "sold out" with
//! it.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::{get, post};
use seckill::http::{ServerLimits, serve};
use seckill::outbox::Outbox;
use seckill::readiness::Readiness;
use seckill::store::Health;
use tokio::net::TcpListener;

/// The allocator of the service.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The answer of the service when a voucher is sold out.
const BODY: &str = concat!(
    r#"{"type":"/problems/sold_out","title":"Sold out","status":409,"code":"sold_out","#,
    r#""detail":"No unit is left.","request_id":"00000000-0000-4000-8000-000000000000"}"#,
);

/// The voucher that a load reads on each connection before it begins.
const VOUCHER: &str =
    r#"{"voucher":{"id":"1","title":"-","status":"on_sale","phase":"open","stock":0}}"#;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let answer = (StatusCode::CONFLICT, [(CONTENT_TYPE, "application/problem+json")], BODY);
    let router = Router::new()
        .route("/api/vouchers/{id}/orders", post(async move || answer))
        .route("/api/vouchers/{id}", get(async || VOUCHER));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let limits = ServerLimits {
        connections: 8192,
        write_timeout: Duration::from_secs(30),
        drain_delay: Duration::ZERO,
        tell_peers: false,
    };
    let end = async { drop(tokio::signal::ctrl_c().await) };
    serve(listener, router, limits, Readiness::new(Health::default(), Outbox::default()), end)
        .await;
    Ok(())
}
