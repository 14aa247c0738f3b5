//! What the cheapest answer costs: a handler that answers a constant, served with the same HTTP
//! settings as the service, and with its allocator. `make bench` measures "sold out" beside it.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::{get, post};
use seckill::http::{Limits, serve};
use seckill::readiness::Readiness;
use seckill::store::Health;
use tokio::net::TcpListener;

/// The service's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// As long as the answer that it stands beside.
const BODY: &str = concat!(
    r#"{"type":"/problems/sold_out","title":"Sold out","status":409,"code":"sold_out","#,
    r#""detail":"No unit is left.","request_id":"00000000-0000-4000-8000-000000000000"}"#,
);

/// What a load asks for before it begins, on each of its connections.
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
    let limits = Limits { connections: 8192, drain_delay: Duration::ZERO, tell_peers: false };
    let end = async { drop(tokio::signal::ctrl_c().await) };
    serve(listener, router, limits, Readiness::new(Health::default()), end).await;
    Ok(())
}
