//! A way to a server on which one command meets with an accident.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use testbed::Redis;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

/// What happens to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accident {
    /// It waits until it is let go.
    Delayed,
    /// The connection is closed instead of passing it on.
    Lost,
    /// It is passed on, and the connection is closed instead of passing on its answer.
    AnswerLost,
}

/// Each command of one task travels alone, so what is read at once is one command.
pub(crate) struct Proxy {
    url: String,
    shared: Arc<ProxyState>,
}

#[derive(Default)]
struct ProxyState {
    plan: Mutex<Option<(String, Accident)>>,
    happened: Notify,
    go: Notify,
}

impl Proxy {
    pub(crate) async fn before(redis: &Redis) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let url = redis.url().replace(&redis.addr().to_string(), &address.to_string());
        let (shared, server) = (Arc::<ProxyState>::default(), redis.addr());
        let planned = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let planned = Arc::clone(&planned);
                tokio::spawn(async move {
                    // A connection that ends in an error has ended: its users see nothing else.
                    let _ended = planned.pass_on(client, server).await;
                });
            }
        });
        Self { url, shared }
    }

    /// The server's URL, by this way.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The next such command meets with that accident.
    pub(crate) fn plan(&self, command: &str, accident: Accident) {
        let mut plan = self.shared.plan.lock().expect("no panic");
        *plan = Some((format!("\r\n{command}\r\n"), accident));
    }

    /// Waits until it has happened.
    pub(crate) async fn happened(&self) {
        let happened = timeout(Duration::from_secs(10), self.shared.happened.notified());
        happened.await.expect("the accident happens");
    }

    /// Lets go the command that waits.
    pub(crate) fn let_go(&self) {
        self.shared.go.notify_one();
    }
}

impl ProxyState {
    fn accident_of(&self, asked: &[u8]) -> Option<Accident> {
        let mut plan = self.plan.lock().expect("no panic");
        let (command, accident) = plan.as_ref()?;
        let is_it = asked.windows(command.len()).any(|part| part == command.as_bytes());
        let accident = is_it.then_some(*accident)?;
        *plan = None;
        Some(accident)
    }

    async fn pass_on(&self, mut client: TcpStream, server: SocketAddr) -> io::Result<()> {
        let mut server = TcpStream::connect(server).await?;
        let (mut asked, mut answered) = (vec![0; 4096], vec![0; 4096]);
        let mut cutting = false;
        loop {
            tokio::select! {
                count = client.read(&mut asked) => {
                    let asked = &asked[..count?];
                    if asked.is_empty() {
                        return Ok(());
                    }
                    let accident = self.accident_of(asked);
                    if accident == Some(Accident::Delayed) {
                        self.happened.notify_one();
                        self.go.notified().await;
                    }
                    if accident == Some(Accident::Lost) {
                        self.happened.notify_one();
                        return Ok(());
                    }
                    cutting = accident == Some(Accident::AnswerLost);
                    server.write_all(asked).await?;
                }
                count = server.read(&mut answered) => {
                    let answered = &answered[..count?];
                    if cutting {
                        self.happened.notify_one();
                    }
                    if answered.is_empty() || cutting {
                        return Ok(());
                    }
                    client.write_all(answered).await?;
                }
            }
        }
    }
}
