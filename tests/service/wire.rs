//! HTTP as bytes: for requests that no client library would send.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest silence after which an answer is taken to be complete.
pub(crate) const SILENCE: Duration = Duration::from_millis(400);

/// How long the first byte of an answer may take: servers may stand still.
const FIRST_BYTE_WITHIN: Duration = Duration::from_secs(10);

/// The most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// What came back over a connection.
pub(crate) struct ReceivedBytes {
    pub(crate) text: String,
    /// Whether the other side closed the connection.
    pub(crate) closed: bool,
}

impl ReceivedBytes {
    /// The statuses of all answers in the text, in their order.
    pub(crate) fn statuses(&self) -> Vec<u16> {
        let lines = self.text.match_indices("HTTP/1.");
        lines
            .filter(|(at, _)| *at == 0 || self.text[..*at].ends_with(['\n', '}']))
            .filter_map(|(at, _)| self.text[at..].get(9..12)?.parse().ok())
            .collect()
    }
}

/// A connection to `http://host:port`.
pub(crate) async fn connect(url: &str) -> TcpStream {
    let address = url.strip_prefix("http://").expect("an http address");
    TcpStream::connect(address).await.expect("a connection")
}

/// Sends bytes and listens until the connection is closed, or is silent for `silence` after an
/// answer has begun.
pub(crate) async fn exchange(url: &str, bytes: &[u8], silence: Duration) -> ReceivedBytes {
    let mut stream = connect(url).await;
    // A server that refuses early may close before everything is sent; the answer tells.
    let _cut_short = stream.write_all(bytes).await;
    let _none_comes = timeout(FIRST_BYTE_WITHIN, stream.readable()).await;
    listen(&mut stream, silence).await
}

/// Listens until the connection is closed or silent for `silence`.
pub(crate) async fn listen(stream: &mut TcpStream, silence: Duration) -> ReceivedBytes {
    let (mut heard, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    let closed = loop {
        match timeout(silence, stream.read(&mut buffer)).await {
            Ok(Ok(0) | Err(_)) => break true,
            Ok(Ok(count)) => heard.extend_from_slice(&buffer[..count]),
            Err(_) => break false,
        }
        assert!(heard.len() < MAX_ANSWER_BYTES, "an answer without end");
    };
    ReceivedBytes { text: String::from_utf8_lossy(&heard).into_owned(), closed }
}
