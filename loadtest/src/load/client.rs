//! One HTTP/1.1 connection that measures rather than helps.
//!
//! It keeps its connection, opens another one when that is gone (a bounded number of times per
//! call) and gives up at a deadline. A request is sent at most once: it is sent again only if hyper
//! hands it back because none of it was written. So no purchase of a load is ever repeated behind
//! the caller's back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};

/// Largest answer that is read, in bytes; a page of orders has about 20 KiB.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Times one call may open a connection.
const MAX_CONNECTS: u32 = 3;
/// Pause before the second and third of them.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Where requests go: an `http://host:port` without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    authority: String,
    host: HeaderValue,
}

impl Target {
    /// Parses `http://host[:port][/]`; everything else is a usage error that says what is wrong
    /// with it.
    pub fn parse(url: &str) -> Result<Arc<Self>> {
        let wrong = |why: &str| Error::Usage(format!("{url:?} is no target: {why}"));
        let uri: Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(wrong("only http:// is spoken here, so name the plain port"));
            }
            _ => return Err(wrong("it must start with http://")),
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong("it must end after the port"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("it must hold no user name"));
        }
        let port = uri.port_u16().unwrap_or(80);
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong("odd host"))?;
        Ok(Arc::new(Self { authority: format!("{}:{port}", authority.host()), host }))
    }

    /// The value of the `Host` header.
    pub fn host(&self) -> HeaderValue {
        self.host.clone()
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The `X-Replica` header.
    pub replica: Option<HeaderValue>,
    /// Whether the body says that it is a problem document.
    pub is_problem: bool,
    /// The body, at most 1 MiB.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No connection, hence nothing was sent.
    #[error("no connection ({0})")]
    NotConnected(String),
    /// The deadline passed first.
    #[error("no answer in time")]
    TimedOut,
    /// The connection ended, or what came was no HTTP.
    #[error("the connection broke ({0})")]
    Broken(String),
}

impl CallError {
    /// A short stable name for counting.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotConnected(_) => "not_connected",
            Self::TimedOut => "timed_out",
            Self::Broken(_) => "connection_broken",
        }
    }
}

/// An open connection; dropping it ends the task that drives it.
#[derive(Debug)]
struct Wire {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// One connection to the target, opened on demand.
#[derive(Debug)]
pub struct Connection {
    target: Arc<Target>,
    deadline: Duration,
    wire: Option<Wire>,
}

impl Connection {
    /// A connection that is opened by its first call; `deadline` bounds each call, connecting
    /// included.
    pub fn new(target: Arc<Target>, deadline: Duration) -> Self {
        Self { target, deadline, wire: None }
    }

    /// Where it leads.
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Sends one request and reads the whole answer.
    pub async fn call(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> std::result::Result<Answer, CallError> {
        let result = tokio::time::timeout(self.deadline, self.exchange(request))
            .await
            .unwrap_or(Err(CallError::TimedOut));
        if result.is_err() {
            self.wire = None;
        }
        result
    }

    async fn exchange(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> std::result::Result<Answer, CallError> {
        let mut last = String::new();
        for attempt in 0..MAX_CONNECTS {
            if attempt > 0 {
                tokio::time::sleep(RECONNECT_PAUSE * attempt).await;
            }
            let sender = match self.sender().await {
                Ok(sender) => sender,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            match sender.try_send_request(request).await {
                Ok(response) => return self.read(response).await,
                Err(mut error) => {
                    self.wire = None;
                    last = error.error().to_string();
                    request = error.take_message().ok_or(CallError::Broken(last.clone()))?;
                }
            }
        }
        Err(CallError::NotConnected(last))
    }

    /// The sender of a connection that is ready for a request.
    async fn sender(&mut self) -> std::result::Result<&mut SendRequest<Full<Bytes>>, String> {
        let usable = match &mut self.wire {
            Some(wire) => wire.sender.ready().await.is_ok(),
            None => false,
        };
        if !usable {
            self.wire = None;
            let stream = TcpStream::connect(&self.target.authority)
                .await
                .map_err(|error| error.to_string())?;
            // Small requests must leave at once; if the option cannot be set, they are merely
            // slower.
            let _ = stream.set_nodelay(true);
            let (sender, connection) =
                http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
            let driver = tokio::spawn(async move {
                // Its error reaches the caller through the sender.
                let _ = connection.await;
            });
            self.wire = Some(Wire { sender, driver });
        }
        self.wire.as_mut().map(|wire| &mut wire.sender).ok_or_else(|| "closed".to_owned())
    }

    async fn read(
        &mut self,
        response: Response<hyper::body::Incoming>,
    ) -> std::result::Result<Answer, CallError> {
        let (head, body) = response.into_parts();
        let closes = head.headers.get(CONNECTION).is_some_and(|value| value.as_bytes() == b"close");
        let body = Limited::new(body, MAX_BODY_BYTES)
            .collect()
            .await
            .map_err(|error| CallError::Broken(error.to_string()))?
            .to_bytes();
        if closes {
            self.wire = None;
        }
        let is_problem = head
            .headers
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"application/problem+json"));
        let replica = head.headers.get("x-replica").cloned();
        Ok(Answer { status: head.status.as_u16(), replica, is_problem, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_without_a_path_is_a_target() {
        for (url, authority) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://example.org/", "example.org:80"),
            ("http://[::1]:99", "[::1]:99"),
        ] {
            assert_eq!(Target::parse(url).expect(url).authority, authority);
        }
        for url in
            ["https://a", "a:80", "http://", "http://a/b", "http://a?b", "ftp://a", "http://u@a"]
        {
            let error = Target::parse(url).expect_err(url);
            assert_eq!(error.exit_code(), 2, "{url}");
        }
    }
}
