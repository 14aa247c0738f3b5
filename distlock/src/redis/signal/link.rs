//! The task that has the connection.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult,
    ServerErrorKind, Value,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::{PING_INTERVAL, RECONNECT_PAUSE, RESPONSE_TIMEOUT, ServerLine};
use crate::redis::connection::ping;

const MOVED: ErrorKind = ErrorKind::Server(ServerErrorKind::Moved);

/// Keeps a connection while there are subscriptions, and [`IDLE_TIMEOUT`](super::IDLE_TIMEOUT)
/// longer.
pub(crate) async fn run(inner: Arc<ServerLine>) {
    let mut pause = RECONNECT_PAUSE.0;
    loop {
        let since = Instant::now();
        match MessageConnection::serve_new(&inner).await {
            Ok(()) => return,
            Err(error) if pause == RECONNECT_PAUSE.0 => {
                tracing::warn!(%error, "message connection failed; waiters poll");
            }
            Err(error) => tracing::debug!(%error, "message connection failed again; waiters poll"),
        }
        // A connection that is refused its first request must not be made again without a pause.
        if since.elapsed() > RECONNECT_PAUSE.1 {
            pause = RECONNECT_PAUSE.0;
        }
        {
            let mut table = inner.table();
            table.lost();
            if table.ends_without_link() {
                return;
            }
        }
        inner.find_channels().await;
        sleep(pause).await;
        pause = (pause * 2).min(RECONNECT_PAUSE.1);
    }
}

struct MessageConnection {
    connection: MultiplexedConnection,
    /// The connection has ended.
    ended: Arc<Notify>,
}

impl MessageConnection {
    async fn serve_new(inner: &Arc<ServerLine>) -> Result<(), RedisError> {
        Self::make(inner).await?.serve(inner).await
    }

    async fn make(inner: &Arc<ServerLine>) -> Result<Self, RedisError> {
        let ended = Arc::<Notify>::default();
        let (table, ending) = (Arc::clone(inner), Arc::clone(&ended));
        // Called by the task that reads the socket, for each message.
        let push = move |push: PushInfo| -> Result<(), std::convert::Infallible> {
            match (push.kind, push.data.as_slice()) {
                (PushKind::Disconnection, _) => ending.notify_one(),
                (PushKind::SSubscribe, [Value::BulkString(channel), ..]) => {
                    table.table().answered(channel);
                }
                // Unasked: the server has the channel no longer. The answers that are under way may
                // be taken for one another now.
                (PushKind::SUnsubscribe, [Value::BulkString(channel), ..])
                    if table.table().is_live(channel) =>
                {
                    ending.notify_one();
                }
                (
                    PushKind::Message | PushKind::SMessage,
                    [Value::BulkString(channel), Value::BulkString(message), ..],
                ) => table.table().deliver(channel, message),
                _ => {}
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(RESPONSE_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_push_sender(push);
        let protocol = Some(ProtocolVersion::RESP3);
        let connection = inner.connection.connect_to(&inner.server, protocol, &config).await;
        let connection = connection.inspect_err(|failure| inner.connection.seen(failure))?;
        Ok(Self { connection, ended })
    }

    /// Returns when the connection is not needed any more, or with what broke it.
    async fn serve(mut self, inner: &ServerLine) -> Result<(), RedisError> {
        let mut ping_at = Instant::now() + PING_INTERVAL;
        loop {
            let work = inner.table().take(Instant::now());
            if !work.subscribe.is_empty() {
                self.subscribe(inner, &work.subscribe).await?;
            }
            if !work.unsubscribe.is_empty() {
                self.unsubscribe(inner, &work.unsubscribe).await?;
            }
            if !work.subscribe.is_empty() || !work.unsubscribe.is_empty() {
                continue;
            }
            tokio::select! {
                () = inner.changed.notified() => {}
                () = self.ended.notified() => return Err(ended()),
                () = inner.connection.replaced(&inner.server) => return Err(ended()),
                () = sleep_until(work.next.map_or(ping_at, |next| next.min(ping_at))) => {}
            }
            let now = Instant::now();
            if inner.table().may_end(now) {
                return Ok(());
            }
            if now >= ping_at {
                ping(&mut self.connection).await?;
                ping_at = Instant::now() + PING_INTERVAL;
            }
        }
    }
}

impl MessageConnection {
    async fn subscribe(&mut self, inner: &ServerLine, channels: &[Arc<str>]) -> RedisResult<()> {
        if !inner.connection.is_cluster() {
            self.connection.subscribe(names(channels)).await?;
            inner.table().confirm(channels);
            return Ok(());
        }
        let mut confirmed = Vec::new();
        for (channel, answer) in channels.iter().zip(self.each("SSUBSCRIBE", channels).await?) {
            match answer.extract_error() {
                Ok(_) => confirmed.push(Arc::clone(channel)),
                Err(failure) if failure.kind() == MOVED => {
                    inner.connection.seen(&failure);
                    inner.table().moved(|name| *name == **channel);
                }
                Err(failure) => return Err(failure),
            }
        }
        inner.table().confirm(&confirmed);
        Ok(())
    }

    async fn unsubscribe(&mut self, inner: &ServerLine, channels: &[Arc<str>]) -> RedisResult<()> {
        if !inner.connection.is_cluster() {
            return self.connection.unsubscribe(names(channels)).await;
        }
        self.each("SUNSUBSCRIBE", channels).await.map(drop)
    }

    /// One command per channel, because each may be in another slot.
    async fn each(&mut self, command: &str, channels: &[Arc<str>]) -> RedisResult<Vec<Value>> {
        let mut commands = redis::pipe();
        for channel in channels {
            commands.cmd(command).arg(&**channel);
        }
        self.connection.send_packed_commands(&commands, 0, channels.len()).await
    }
}

impl ServerLine {
    /// On a cluster, and by sentinels: finds out which channels another server has.
    async fn find_channels(&self) {
        if !self.connection.has_homes() {
            return;
        }
        if let Err(error) = self.connection.refresh().await {
            tracing::debug!(%error, "no map of the servers; channels stay where they were");
        }
        let is_elsewhere = |name: &str| self.connection.known_name(name) != self.server;
        self.table().moved(is_elsewhere);
    }
}

fn names(channels: &[Arc<str>]) -> Vec<&str> {
    channels.iter().map(AsRef::as_ref).collect()
}

fn ended() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()
}
