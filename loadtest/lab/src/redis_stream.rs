//! A connection of the laboratory's own to the Redis that a deployment's lock lives on.

use loadtest_measure::error::{Error, Result};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::deployment::Deployment;

/// A connection that is logged in.
pub(super) struct RedisStream(pub(super) BufReader<TcpStream>);

impl RedisStream {
    /// Connects, and has Redis carry out that command, whose answer must be `OK`.
    pub(super) async fn open(deployment: &Deployment, command: &str) -> Result<Self> {
        // A failover has left the old one dead.
        let successor = deployment.follower().filter(|_| !deployment.redis().is_running());
        let redis = successor.map_or(&**deployment.redis(), |(redis, _)| redis);
        let stream = TcpStream::connect(redis.addr()).await.map_err(failed)?;
        let mut stream = Self(BufReader::new(stream));
        for command in [&format!("AUTH {}", redis.as_master().password), command] {
            let answer = stream.ask(command).await?;
            if answer != "+OK" {
                return Err(failed(answer));
            }
        }
        Ok(stream)
    }

    /// Sends a command, whose answer is one line.
    pub(super) async fn ask(&mut self, command: &str) -> Result<String> {
        self.0.write_all(format!("{command}\r\n").as_bytes()).await.map_err(failed)?;
        let mut answer = String::new();
        match self.0.read_line(&mut answer).await.map_err(failed)? {
            0 => Err(failed("it has closed the connection")),
            _ => Ok(answer.trim_end().to_owned()),
        }
    }
}

pub(super) fn failed(why: impl std::fmt::Display) -> Error {
    Error::Setup(format!("Redis: {why}"))
}
