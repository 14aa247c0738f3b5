//! A served board whose requests are left to the test: no lane is behind it.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header;
use reqwest::{Client, RequestBuilder};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::access::{Access, TOKEN_HEADER};
use crate::event_log::EventLog;
use crate::http::{BoardState, router};
use crate::race::BoardRequests;
use crate::race_logs::RaceLogs;

/// How long anything may take here on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// The board.
pub(crate) struct TestBoard {
    pub(crate) state: Arc<BoardState>,
    pub(crate) origin: String,
    pub(crate) token: String,
    pub(crate) logs: RaceLogs,
    /// The events of these logs.
    pub(crate) log: Arc<EventLog>,
    pub(crate) requests: BoardRequests,
    pub(crate) stop: CancellationToken,
    pub(crate) client: Client,
}

impl TestBoard {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (logs, stop) = (RaceLogs::default(), CancellationToken::new());
        let (state, requests) = BoardState::new(Access::new(address), logs.clone(), stop.clone());
        let url = state.url();
        let (origin, token) = url.split_once("/?token=").expect("a token");
        let (origin, token) = (origin.to_owned(), token.to_owned());
        let until = stop.clone().cancelled_owned();
        let server = axum::serve(listener, router(state.clone())).with_graceful_shutdown(until);
        tokio::spawn(async move { server.await.expect("served") });
        let client = Client::builder().read_timeout(DEADLINE).build().expect("a client");
        let log = logs.events.clone();
        Self { state, origin, token, logs, log, requests, stop, client }
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        let request = self.client.post(format!("{}/{path}", self.origin)).json(body);
        request.header(TOKEN_HEADER, &self.token).header(header::ORIGIN, &self.origin)
    }
}
