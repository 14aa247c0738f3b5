//! A service whose handler knows no locks: a layer of tower takes them.
//!
//! `cargo run -p distlock --features tower --example lock_layer -- redis://127.0.0.1:6379
//! 127.0.0.1:3000`, then `curl -i -X POST http://127.0.0.1:3000/jobs/report`

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request};
use axum::routing::post;
use distlock::{Backends, LockKind, LockLayer, LockName, LockOptions, Locks, RedisServer, locker};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".into());
    let backends = Backends { redis: Some(RedisServer::open(&url).await?), ..Backends::default() };
    let locks = Locks::new(locker(LockKind::Redisson, &backends)?);

    // A job that runs elsewhere is refused with 409 after half a second.
    let lease = locks.guarantees().lease(Duration::from_secs(10));
    let options = LockOptions::new(Duration::from_millis(500), lease);
    let by_path = |request: &Request| LockName::new(format!("layer:{}", request.uri().path()));
    let layer = LockLayer::new(locks.clone(), options, by_path);

    let app = Router::new().route("/jobs/{job}", post(run_job)).route_layer(layer);
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let interrupt = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, app).with_graceful_shutdown(interrupt).await?;
    locks.flush().await;
    Ok(())
}

/// A job, which ends at an await if the lock is lost or the client leaves.
async fn run_job(Path(job): Path<String>) -> String {
    tokio::time::sleep(Duration::from_secs(1)).await;
    format!("{job} is done\n")
}
