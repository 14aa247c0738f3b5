//! Serves connections, and shuts down without losing a request.
//!
//! axum's own server has no time-out for headers, so connections are served by hyper directly.
//!
//! Shutdown has three steps:
//!
//! 1. `/readyz` is 503 and answers carry `Connection: close`, so that the proxy sends nothing new.
//! 2. For the drain delay all requests are still answered.
//! 3. No connection is accepted any more, and requests in flight are finished.

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
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::rate_limits::Peer;
use crate::readiness::Readiness;

/// Bounds of the server.
#[derive(Debug, Clone, Copy)]
pub struct ServerLimits {
    /// The most connections; more wait in the kernel's queue.
    pub connections: usize,
    /// How long a client may take no byte of its answer; streams of events included.
    pub write_timeout: Duration,
    /// How long requests are still accepted after the signal to end.
    pub drain_delay: Duration,
    /// Whether requests carry the address of their connection, for rate limits.
    pub tell_peers: bool,
}

/// How long the headers of a request may take, and how long a connection may be idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of request line and headers.
const HEADER_BYTES: usize = 32 * 1024;
/// The kernel's buffer for answers that a client does not read. Its default would hold megabytes of
/// each connection, and let the service answer as many requests.
const SEND_BUFFER: usize = 64 * 1024;
/// The longest time for requests in flight: looking up a lost COMMIT takes up to 30 s.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(40);
/// After a failed accept (no file descriptors left), a pause instead of a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `end` resolves, then drains.
pub async fn serve<S>(
    listener: TcpListener,
    service: S,
    limits: ServerLimits,
    readiness: Readiness,
    end: impl Future<Output = ()>,
) where
    S: tower::Service<Request<Incoming>, Response = Response, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let server = Server {
        permits: Arc::new(Semaphore::new(limits.connections)),
        service,
        tell_peers: limits.tell_peers,
        write_timeout: limits.write_timeout,
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
    if timeout(SHUTDOWN_TIMEOUT, server.connections.shutdown()).await.is_err() {
        tracing::error!(
            "requests in flight after the shutdown time-out; closing their connections"
        );
    }
}

struct Server<S> {
    service: S,
    tell_peers: bool,
    write_timeout: Duration,
    permits: Arc<Semaphore>,
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
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, peer)) => self.start(stream, peer, permit),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection; trying again in 50 ms");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn start(&self, stream: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit) {
        // Best effort: without it small answers leave later.
        let _unsupported = stream.set_nodelay(true);
        // Best effort: a buffer of the system's own size does as well, but costs more memory.
        let _unsupported = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
        // The kernel's time-out also counts bytes in its buffers that the client does not read.
        let bounded = SockRef::from(&stream).set_tcp_user_timeout(Some(self.write_timeout));
        if let Err(error) = bounded {
            tracing::warn!(%error, "cannot set the write time-out; closing the connection");
            return;
        }
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
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let connection = self.connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended early");
            }
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use bytes::Bytes;
    use http_body_util::channel::Channel;
    use socket2::{Domain, Socket, Type};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::watch;
    use tokio::time::Instant;

    use super::*;
    use crate::outbox::Outbox;
    use crate::store::Health;

    const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
    const DEADLINE: Duration = Duration::from_secs(10);

    /// A client with an endless stream. The receiver says whether the server has ended the stream.
    async fn endless_stream() -> (TcpStream, watch::Receiver<bool>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (given_up, hears) = watch::channel(false);
        let service = tower::service_fn(move |_: Request<Incoming>| {
            let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
            let given_up = given_up.clone();
            tokio::spawn(async move {
                while sender.send_data(Bytes::from_static(&[b'x'; 4096])).await.is_ok() {}
                given_up.send_replace(true);
            });
            async { Ok::<_, Infallible>(Response::new(Body::new(body))) }
        });
        let limits = ServerLimits {
            connections: 1,
            write_timeout: WRITE_TIMEOUT,
            drain_delay: Duration::ZERO,
            tell_peers: false,
        };
        let readiness = Readiness::new(Health::default(), Outbox::default());
        tokio::spawn(serve(listener, service, limits, readiness, std::future::pending()));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.connect(&address.into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut client = TcpStream::from_std(socket.into()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        (client, hears)
    }

    #[tokio::test]
    async fn a_stream_that_its_client_does_not_read_ends_after_the_write_timeout() {
        let (_client, mut hears) = endless_stream().await;
        let began = Instant::now();
        let ended = timeout(DEADLINE, hears.wait_for(|given_up| *given_up)).await;
        assert!(ended.is_ok(), "still open after {DEADLINE:?}");
        assert!(began.elapsed() >= WRITE_TIMEOUT, "{:?}", began.elapsed());
    }

    // With the usual buffers: the kernel also ends the stream of a client that reads, if its window
    // never has room for all that is queued (decision 0041).
    #[tokio::test]
    async fn a_client_that_reads_slowly_keeps_its_stream() {
        for _ in 0..10 {
            let (mut client, hears) = endless_stream().await;
            let mut buffer = vec![0; 32 * 1024];
            let (began, mut last_read) = (Instant::now(), Instant::now());
            let mut longest_pause = Duration::ZERO;
            while began.elapsed() < WRITE_TIMEOUT * 4 {
                let read = client.read(&mut buffer).await;
                longest_pause = longest_pause.max(last_read.elapsed());
                last_read = Instant::now();
                if read.is_ok_and(|bytes| bytes > 0) {
                    sleep(WRITE_TIMEOUT / 10).await;
                } else {
                    break;
                }
            }
            // A client that the machine stops for a write timeout does not read slowly.
            if longest_pause < WRITE_TIMEOUT / 2 {
                assert!(!*hears.borrow(), "after {:?}", began.elapsed());
                assert!(began.elapsed() >= WRITE_TIMEOUT * 4, "{:?}", began.elapsed());
                return;
            }
        }
        panic!("the machine stopped each of ten clients");
    }
}
