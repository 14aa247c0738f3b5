//! A collector of traces that takes each batch and answers.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use loadtest_measure::error::{Error, Result};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long the first batch may take. An exporter sends one every 5 s.
pub const BATCH_DEADLINE: Duration = Duration::from_secs(20);

/// The collector of one deployment, and the share of the requests that are traced.
#[derive(Debug)]
pub struct TraceCollector {
    ratio: &'static str,
    address: SocketAddr,
    /// Batches that came.
    batches: watch::Sender<u64>,
    /// Ends with the value.
    _server: JoinSet<()>,
}

impl TraceCollector {
    /// Listens on a free port.
    pub async fn start(ratio: &'static str) -> Result<Self> {
        let failed = |error: io::Error| Error::Setup(format!("no collector of traces: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let batches = watch::Sender::new(0);
        let mut server = JoinSet::new();
        server.spawn(serve(listener, batches.clone()));
        Ok(Self { ratio, address, batches, _server: server })
    }

    /// What has a replica send its traces here.
    pub fn flags(&self) -> [String; 2] {
        [
            format!("--otlp-endpoint=http://{}", self.address),
            format!("--trace-ratio={}", self.ratio),
        ]
    }

    /// Why the load was none with that share of traces, in words.
    pub async fn why_invalid(&self, deadline: Duration) -> Option<String> {
        let is_traced = self.ratio != "0";
        if !is_traced {
            return (*self.batches.borrow() > 0).then(|| "traces came of 0 %".to_owned());
        }
        let mut batches = self.batches.subscribe();
        let came = tokio::time::timeout(deadline, batches.wait_for(|count| *count > 0)).await;
        came.is_err().then(|| format!("no trace came of {} of the requests", self.ratio))
    }
}

async fn serve(listener: TcpListener, batches: watch::Sender<u64>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let batches = batches.clone();
        connections.spawn(async move {
            // The exporter connects again.
            let _closed = answer(BufReader::new(stream), &batches).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Answers the requests of a connection until it is closed.
async fn answer(mut stream: BufReader<TcpStream>, batches: &watch::Sender<u64>) -> io::Result<()> {
    let (mut line, mut length) = (String::new(), 0);
    while stream.read_line(&mut line).await? > 0 {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if line.trim_end().is_empty() {
            tokio::io::copy(&mut (&mut stream).take(length), &mut tokio::io::sink()).await?;
            batches.send_modify(|count| *count += 1);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
            length = 0;
        }
        line.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends two batches over one connection.
    async fn send_two(collector: &TraceCollector) {
        let mut stream = TcpStream::connect(collector.address).await.expect("a connection");
        for _ in 0..2 {
            let request = b"POST /v1/traces HTTP/1.1\r\nContent-Length: 3\r\n\r\na\nb";
            stream.write_all(request).await.expect("a request");
            let mut answer = [0; 38];
            stream.read_exact(&mut answer).await.expect("an answer");
            assert!(answer.starts_with(b"HTTP/1.1 200 OK"), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_load_is_valid_with_traces_of_its_share_and_without_any_of_no_share() {
        let [traced, untraced] = ["0.01", "0"];
        let traced = TraceCollector::start(traced).await.expect("a collector");
        let untraced = TraceCollector::start(untraced).await.expect("a collector");
        assert_eq!(untraced.why_invalid(BATCH_DEADLINE).await, None);
        send_two(&traced).await;
        send_two(&untraced).await;
        assert_eq!(traced.why_invalid(BATCH_DEADLINE).await, None);
        assert_eq!(*traced.batches.borrow(), 2);
        assert_eq!(
            untraced.why_invalid(BATCH_DEADLINE).await.as_deref(),
            Some("traces came of 0 %")
        );
    }

    #[tokio::test]
    async fn a_load_without_the_traces_of_its_share_is_invalid() {
        let collector = TraceCollector::start("0.01").await.expect("a collector");
        let why = collector.why_invalid(Duration::ZERO).await.expect("a reason");
        assert!(why.contains("0.01"), "{why}");
    }
}
