//! A service with several replicas. Each job runs on one replica at a time, named by the path.
//!
//! `cargo run -p distlock --example axum -- redis://127.0.0.1:6379 127.0.0.1:3000`, then
//! `curl -X POST http://127.0.0.1:3000/jobs/report`

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use distlock::{
    Backends, Guard, LockError, LockKind, LockName, LockOptions, Locks, RedisServer, locker,
};

/// A waiting request is refused after this time.
const WAIT: Duration = Duration::from_millis(500);
/// A replica that dies keeps a job for this time.
const LEASE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".into());
    let backends = Backends { redis: Some(RedisServer::open(&url).await?), ..Backends::default() };
    let locks = Locks::new(locker(LockKind::Redisson, &backends)?);

    let app = Router::new().route("/jobs/{job}", post(run_job)).with_state(locks.clone());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let interrupt = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, app).with_graceful_shutdown(interrupt).await?;
    // Releases of dropped guards run in the background.
    locks.flush().await;
    Ok(())
}

type Refusal = (StatusCode, String);

async fn run_job(State(locks): State<Locks>, Path(job): Path<String>) -> Result<String, Refusal> {
    let name = LockName::new(format!("job:{job}")).map_err(|error| refusal(&error))?;
    let options = LockOptions::new(WAIT, locks.guarantees().lease(LEASE));
    let guard = locks.lock(&name, &options).await.map_err(|error| refusal(&error))?;
    // If the client leaves, this future is dropped; the guard then releases in the background.
    let steps = work(&guard).await;
    guard.release().await.map_err(|error| refusal(&error))?;
    Ok(format!("{job}: {steps} steps\n"))
}

/// The work looks at the lock before each effect.
async fn work(guard: &Guard) -> u32 {
    let mut steps = 0;
    while steps < 20 && !guard.is_lost() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        steps += 1;
    }
    steps
}

fn refusal(error: &LockError) -> Refusal {
    let status = match error {
        LockError::TimedOut { .. } => StatusCode::CONFLICT,
        LockError::BadRequest { .. } => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, format!("{error}\n"))
}
