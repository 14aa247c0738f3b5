//! A fixed port for a person: passes connections on to the proxy, whose port the test bed chooses.
//!
//! The port is claimed before any server is started, so that one that is in use is known at once
//! and nobody takes it meanwhile. Only `loadtest up` uses this; no measured request comes here.

use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Most connections at a time; more wait in the listener's queue.
const MAX_CONNECTIONS: usize = 512;

/// A claimed port of 127.0.0.1.
#[derive(Debug)]
pub struct Forward {
    listener: TcpListener,
    port: u16,
}

impl Forward {
    /// Claims the port.
    pub async fn claim(port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    /// The address for people.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Passes every connection on to `address`, until dropped.
    pub async fn run(&self, address: &str) {
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        while let Ok(permit) = room.clone().acquire_owned().await {
            while connections.try_join_next().is_some() {}
            // A connection that is gone before it was accepted is no reason to stop.
            let Ok((mut from, _)) = self.listener.accept().await else { continue };
            let address = address.to_owned();
            connections.spawn(async move {
                if let Ok(mut to) = TcpStream::connect(address).await {
                    // How a connection ends is a matter between its two ends.
                    let _ = copy_bidirectional(&mut from, &mut to).await;
                }
                drop(permit);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn what_is_sent_to_the_claimed_port_arrives_behind_it_and_comes_back() {
        let behind = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = behind.local_addr().expect("bound").to_string();
        let forward = Forward::claim(0).await.expect("a free port");
        let port = forward.port;
        assert!(Forward::claim(port).await.is_err(), "it is claimed");
        let echo = async {
            let (mut stream, _) = behind.accept().await.expect("accepted");
            let mut word = [0; 4];
            stream.read_exact(&mut word).await.expect("read");
            stream.write_all(&word).await.expect("written");
        };
        let talk = async {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
            stream.write_all(b"ping").await.expect("written");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("read");
            assert_eq!(answer, "ping");
        };
        tokio::select! {
            () = forward.run(&address) => panic!("it ended"),
            _ = futures_util::future::join(echo, talk) => {}
        }
    }
}
