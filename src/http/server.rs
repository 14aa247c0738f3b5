//! Serving connections, and ending without losing a request.
//!
//! axum's own server has no time-out for headers, so connections are served by hyper directly.
//! The end: `/readyz` turns 503 and answers carry `Connection: close` at once, so that the proxy
//! sends nothing new; for a while everything is still answered; then nothing is accepted any
//! more, and what is under way is finished.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::limits::Peer;
use crate::readiness::Readiness;

/// Bounds of the server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most connections; more wait in the kernel's queue.
    pub connections: usize,
    /// How long to go on answering after the end was asked for.
    pub drain_delay: Duration,
    /// Whether requests are told whose connection they came over, for rate limits.
    pub tell_peers: bool,
}

/// How long the headers of a request may take, and how long a connection may be idle.
const HEADERS: Duration = Duration::from_secs(10);
/// The most bytes of request line and headers.
const HEADER_BYTES: usize = 32 * 1024;
/// The longest work under way: a purchase whose COMMIT must be found out takes up to 30 s.
const LAST_WORK: Duration = Duration::from_secs(40);
/// After a failed accept (no file descriptors left), a pause instead of a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `end` resolves, then drains.
pub async fn serve<S>(
    listener: TcpListener,
    service: S,
    limits: Limits,
    readiness: Readiness,
    end: impl Future<Output = ()>,
) where
    S: tower::Service<Request<Incoming>, Response = Response, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let server = Server {
        places: Arc::new(Semaphore::new(limits.connections)),
        service,
        tell_peers: limits.tell_peers,
        connections: GracefulShutdown::new(),
    };
    let drained = async {
        end.await;
        readiness.drain();
        tracing::info!(delay_ms = limits.drain_delay.as_millis(), "draining");
        sleep(limits.drain_delay).await;
    };
    tokio::select! {
        () = server.accept(&listener) => {}
        () = drained => {}
    }
    drop(listener);
    if timeout(LAST_WORK, server.connections.shutdown()).await.is_err() {
        tracing::error!("connections were still busy at the end and are cut");
    }
}

struct Server<S> {
    service: S,
    tell_peers: bool,
    places: Arc<Semaphore>,
    connections: GracefulShutdown,
}

impl<S> Server<S>
where
    S: tower::Service<Request<Incoming>, Response = Response, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    async fn accept(&self, listener: &TcpListener) {
        loop {
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, peer)) => self.start(stream, peer, place),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn start(&self, stream: TcpStream, peer: SocketAddr, place: OwnedSemaphorePermit) {
        // Only a matter of speed: small answers are to leave at once.
        let _unsupported = stream.set_nodelay(true);
        let inner = TowerToHyperService::new(self.service.clone());
        let peer = self.tell_peers.then_some(Peer(peer));
        let service = service_fn(move |mut request: Request<Incoming>| {
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            inner.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS)
            .max_buf_size(HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let connection = self.connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(place);
        });
    }
}
