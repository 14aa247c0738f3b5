//! One HTTP/1.1 connection for measuring: it hides no error and no delay.
//!
//! It keeps its connection, opens another one when that is gone (at most three times per call) and
//! gives up at a deadline. A request is sent at most once. A connection that the server has closed
//! is replaced before anything is written. After the first byte is written the request is never
//! repeated. So no purchase of a load is sent twice without the caller's knowledge.
//!
//! A request is bytes in the connection's own buffer. [`Connection::begin`] writes it at once,
//! without waiting, so that several connections can get requests before the first of them is
//! awaited. [`Connection::finish`] does the rest.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::Uri;
use loadtest_measure::error::{Error, Result};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::hold_report::HoldReport;
use crate::wire::{Reply, Wire};

/// The code of a request whose client hung up.
pub const HUNG_UP: &str = "hung_up";
/// Times one call may open a connection.
const MAX_CONNECTS: u32 = 3;
/// Pause before the second and third of them.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Where requests go: an `http://host:port` without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    authority: String,
    host: String,
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
        let host = authority.as_str().to_owned();
        Ok(Arc::new(Self { authority: format!("{}:{port}", authority.host()), host }))
    }

    /// The value of the `Host` header.
    pub fn host(&self) -> &str {
        &self.host
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The `X-Replica` header, if it is text.
    pub replica: Option<&'a str>,
    /// When its lock was held, if a laboratory's service tells.
    pub hold: Option<HoldReport>,
    /// Whether the body says that it is a problem document.
    pub is_problem: bool,
    /// The body, at most 1 MiB.
    pub body: &'a [u8],
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
    /// The client closed the connection, as it was told to.
    #[error("the client hung up")]
    HungUp,
}

impl CallError {
    /// A short stable name for counting.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotConnected(_) => "not_connected",
            Self::TimedOut => "timed_out",
            Self::Broken(_) => "connection_broken",
            Self::HungUp => HUNG_UP,
        }
    }
}

/// When a client closes its connection instead of waiting for the answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HangUp {
    /// When this part of the request's bytes is written, 0 to below 1.
    BeforeSent(f64),
    /// This long after all bytes are written, or when the first byte of the answer comes.
    AfterSent(Duration),
    /// When the first part of the answer is there.
    DuringAnswer,
}

type CallResult<T> = std::result::Result<T, CallError>;

/// One connection to the target, opened on demand.
#[derive(Debug)]
pub struct Connection {
    target: Arc<Target>,
    deadline: Duration,
    wire: Option<Wire>,
    request: Vec<u8>,
    /// Bytes of the request that are written.
    written: usize,
    due: Instant,
    /// Wakes the task when the deadline may have passed. It is set again only when it fires, not
    /// for each request.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    /// A connection that is opened by its first call; `deadline` bounds each call, connecting
    /// included.
    pub fn new(target: Arc<Target>, deadline: Duration) -> Self {
        let due = Instant::now();
        Self { target, deadline, wire: None, request: Vec::new(), written: 0, due, alarm: None }
    }

    /// Where it leads.
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// The bytes of the next request, for the caller to fill; empty.
    pub fn request(&mut self) -> &mut Vec<u8> {
        self.request.clear();
        &mut self.request
    }

    /// Sends the request and reads the whole answer.
    pub async fn call(&mut self) -> CallResult<Answer<'_>> {
        self.begin();
        self.finish().await
    }

    /// Writes as much of the request as the connection takes at once, which is all of it unless the
    /// connection has to be opened first. The deadline counts from here.
    pub fn begin(&mut self) {
        self.due = Instant::now() + self.deadline;
        self.written = 0;
        if self.wire.as_mut().is_some_and(Wire::is_stale) {
            self.wire = None;
        }
        if let Some(wire) = &mut self.wire {
            match wire.write(&self.request) {
                Ok(written) => self.written = written,
                // Nothing of it was written; `finish` opens another connection.
                Err(_) => self.wire = None,
            }
        }
    }

    /// What `begin` left of the request, and the answer.
    pub async fn finish(&mut self) -> CallResult<Answer<'_>> {
        let reply = match self.exchange().await {
            Ok(reply) => reply,
            Err(error) => {
                self.wire = None;
                return Err(error);
            }
        };
        let wire = self.wire.as_ref().ok_or_else(gone)?;
        Ok(wire.answer(reply))
    }

    /// Instead of `begin` and `finish`: sends as much as `when` says and closes the connection.
    pub async fn hang_up(&mut self, when: HangUp) -> CallError {
        let length = self.request.len();
        if let HangUp::BeforeSent(part) = when {
            self.request.truncate(share_of(length, part));
        }
        self.begin();
        let result = self.hang_up_when(when).await;
        self.wire = None;
        result.err().unwrap_or(CallError::HungUp)
    }

    async fn hang_up_when(&mut self, when: HangUp) -> CallResult<()> {
        self.send().await?;
        match when {
            HangUp::BeforeSent(_) => Ok(()),
            HangUp::AfterSent(pause) => {
                self.due = self.due.min(Instant::now() + pause);
                match self.first_bytes().await {
                    Err(CallError::TimedOut) => Ok(()),
                    result => result,
                }
            }
            HangUp::DuringAnswer => self.first_bytes().await,
        }
    }

    async fn first_bytes(&mut self) -> CallResult<()> {
        let (wire, mut clock) = self.parts()?;
        clock.limit(wire.first_bytes()).await
    }

    async fn exchange(&mut self) -> CallResult<Reply> {
        self.send().await?;
        let (wire, mut clock) = self.parts()?;
        clock.limit(wire.read_reply()).await
    }

    /// Writes the rest of the request, on a new connection if there is none.
    async fn send(&mut self) -> CallResult<()> {
        if self.wire.is_none() && self.written == 0 {
            self.open().await?;
        }
        let request = std::mem::take(&mut self.request);
        let result = self.write_rest(&request).await;
        self.request = request;
        result
    }

    async fn write_rest(&mut self, request: &[u8]) -> CallResult<()> {
        let from = self.written;
        if from == request.len() {
            return Ok(());
        }
        let (wire, mut clock) = self.parts()?;
        let result = clock.limit(wire.write_all(&request[from..])).await;
        self.written = request.len();
        result
    }

    async fn open(&mut self) -> CallResult<()> {
        let opened = tokio::time::timeout_at(self.due.into(), connect(&self.target)).await;
        let wire = opened.map_err(|_| CallError::TimedOut)?;
        self.wire = Some(wire.map_err(|error| CallError::NotConnected(error.to_string()))?);
        Ok(())
    }

    fn parts(&mut self) -> CallResult<(&mut Wire, Clock<'_>)> {
        let clock = Clock { due: self.due, alarm: &mut self.alarm };
        let wire = self.wire.as_mut().ok_or_else(gone)?;
        Ok((wire, clock))
    }
}

fn gone() -> CallError {
    CallError::Broken("the connection was dropped".to_owned())
}

async fn connect(target: &Target) -> io::Result<Wire> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match TcpStream::connect(&target.authority).await {
            Ok(stream) => {
                // Small requests must leave at once; if the option cannot be set, they are merely
                // slower.
                let _ = stream.set_nodelay(true);
                return Ok(Wire::new(stream));
            }
            Err(error) if attempt == MAX_CONNECTS => return Err(error),
            Err(_) => tokio::time::sleep(RECONNECT_PAUSE * attempt).await,
        }
    }
}

/// The number of bytes that this part of `length` is.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn share_of(length: usize, part: f64) -> usize {
    ((length as f64 * part) as usize).min(length.saturating_sub(1))
}

/// A deadline that costs a timer only when it may have passed.
struct Clock<'a> {
    due: Instant,
    alarm: &'a mut Option<Pin<Box<Sleep>>>,
}

impl Clock<'_> {
    async fn limit<T>(&mut self, work: impl Future<Output = io::Result<T>>) -> CallResult<T> {
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(|context| {
            if let Poll::Ready(result) = work.as_mut().poll(context) {
                return Poll::Ready(result.map_err(|error| CallError::Broken(error.to_string())));
            }
            self.poll_due(context).map(|()| Err(CallError::TimedOut))
        })
        .await
    }

    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let due = self.due.into();
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        // An alarm of an earlier request fires too soon, never too late, and is then set again.
        if alarm.deadline() > due {
            alarm.as_mut().reset(due);
        }
        while alarm.as_mut().poll(context).is_ready() {
            if Instant::now() >= self.due {
                return Poll::Ready(());
            }
            alarm.as_mut().reset(due);
        }
        Poll::Pending
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
