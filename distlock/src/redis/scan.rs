//! Names of locks by SCAN, page by page, on all masters of a cluster. KEYS would stop the server.

use std::collections::VecDeque;

use redis::RedisResult;

use super::RedisConnection;

/// Where SCAN continues. A server keeps nothing of it.
pub(crate) struct ScanPosition {
    /// The servers that are not done; the first is being read.
    servers: VecDeque<RedisConnection>,
    /// The server's own cursor; 0 begins and ends a scan.
    cursor: u64,
    /// Whether the first server has begun.
    has_begun: bool,
    /// Keys of that server for the next pages.
    surplus: VecDeque<Vec<u8>>,
}

impl ScanPosition {
    /// The beginning, with the masters there are now.
    pub(crate) async fn start(connection: &RedisConnection) -> RedisResult<Self> {
        let servers = connection.servers().await?.into();
        Ok(Self { servers, cursor: 0, has_begun: false, surplus: VecDeque::new() })
    }

    /// The next keys that match, at most `limit`, and their server. `None` at the end.
    pub(crate) async fn next(
        &mut self,
        pattern: &[u8],
        limit: usize,
    ) -> RedisResult<Option<(RedisConnection, Vec<Vec<u8>>)>> {
        self.prefetch(pattern, limit).await?;
        let Some(server) = self.servers.front() else { return Ok(None) };
        let count = limit.min(self.surplus.len());
        Ok(Some((server.clone(), self.surplus.drain(..count).collect())))
    }

    /// Asks for the keys after those that [`Self::next`] has given, unless some are here already.
    pub(crate) async fn prefetch(&mut self, pattern: &[u8], limit: usize) -> RedisResult<()> {
        if !self.surplus.is_empty() {
            return Ok(());
        }
        if self.has_begun && self.cursor == 0 {
            self.servers.pop_front();
            self.has_begun = false;
        }
        let Some(server) = self.servers.front() else { return Ok(()) };
        let mut scan = redis::cmd("SCAN");
        scan.arg(self.cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(limit);
        let (cursor, keys): (u64, Vec<Vec<u8>>) = scan.query_async(&mut server.clone()).await?;
        (self.cursor, self.has_begun) = (cursor, true);
        self.surplus.extend(keys);
        Ok(())
    }

    /// Whether nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        let is_last_done = self.has_begun && self.cursor == 0 && self.surplus.is_empty();
        self.servers.is_empty() || (is_last_done && self.servers.len() == 1)
    }
}

/// A pattern's part that matches this text and nothing else.
pub(crate) fn escape_glob(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if "*?[]\\^-".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
