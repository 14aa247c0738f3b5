//! The race board: two cells side by side on real replicas, live in a browser.
//!
//! Both lanes are deployments of one private cluster. The same crowd comes to both, at the same
//! moments. A page shows what each request did, lets a person inject faults, and shows the judge's
//! verdict. Nothing on it is simulated.
//!
//! In reading order:
//! - what a race is made of, and the limits ([`setup`]); the challenges ([`challenge`]);
//!   the rungs of the ladder (`rung_race`);
//! - the log of a race, from which any number of pages read ([`event_log`], `race_logs`), and its
//!   events (`wire`);
//! - the lanes (`lane`), the race on them (`race`), what an order costs (`replica_times`), the
//!   commands as they pass (`commands`), and the lines that send them (`command_sources`);
//! - the locks that are held (`held_locks`, `lock_rows`), and the lease of one (`lease_sampler`);
//! - the server (`http`), which requests it refuses (`access`) and how it says so
//!   ([`board_error`]), the page (`page`), what the laboratory says in both languages (`lab_text`).
//!
//! A page that is slow costs the load nothing: it has a position in the log, and no queue.

mod access;
pub mod board_error;
pub mod challenge;
mod command_sources;
mod commands;
pub mod event_log;
mod held_locks;
mod http;
mod lab_text;
mod lane;
mod lease_sampler;
mod lock_rows;
mod page;
mod race;
mod race_logs;
mod replica_times;
mod rung_race;
pub mod setup;
#[cfg(test)]
mod test_board;
mod wire;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use loadtest_lab::cluster::Cluster;
use loadtest_measure::error::{Error, Result};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::http::BoardState;
use crate::race::Arena;
use crate::race_logs::RaceLogs;

/// The board's port, or any free one if that is in use.
const DEFAULT_PORT: u16 = 8090;
/// How long answers may take to end when the board ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// A board that is being served.
#[derive(Debug)]
pub struct Board {
    url: String,
    tasks: JoinSet<()>,
    arena: Arc<Arena>,
}

impl Board {
    /// Serves a board on 127.0.0.1 until `stop` is cancelled. Its lanes are started when the page
    /// is opened.
    pub async fn start(cluster: Arc<Cluster>, stop: &CancellationToken) -> Result<Self> {
        let listener = listen().await?;
        let address = listener.local_addr();
        let address =
            address.map_err(|error| Error::Setup(format!("no port for the board: {error}")))?;
        let logs = RaceLogs::default();
        let arena = Arc::new(Arena::new(cluster, logs.clone()));
        let (state, requests) = BoardState::new(Access::new(address), logs, stop.clone());
        let url = state.url();
        let mut tasks = JoinSet::new();
        let (racing, stopped) = (arena.clone(), stop.clone());
        tasks.spawn(async move {
            let races = Box::pin(racing.serve(requests));
            stopped.run_until_cancelled(races).await.unwrap_or(());
        });
        let until = stop.clone().cancelled_owned();
        let server = axum::serve(listener, http::router(state)).with_graceful_shutdown(until);
        tasks.spawn(async move {
            // It fails only if no connection can be accepted any more.
            let _ = server.await;
        });
        Ok(Self { url, tasks, arena })
    }

    /// The address of the page, with the token that it is opened by.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends races and the server, and takes the lanes down. `stop` must have been cancelled.
    pub async fn end(mut self) {
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        // A page that does not read would keep its connection.
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await;
        self.tasks.shutdown().await;
        self.arena.take_down().await;
    }
}

async fn listen() -> Result<TcpListener> {
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let usual = TcpListener::bind(at(DEFAULT_PORT)).await;
    match usual {
        Ok(listener) => Ok(listener),
        Err(_in_use) => TcpListener::bind(at(0))
            .await
            .map_err(|error| Error::Setup(format!("no port for the board: {error}"))),
    }
}
