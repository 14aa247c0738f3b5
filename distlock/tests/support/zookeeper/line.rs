//! A way to `ZooKeeper` that understands enough of its protocol to fail at a chosen request.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Requests by the protocol's numbers.
pub(crate) const CREATE: i32 = 15;
pub(crate) const CREATE_CONTAINER: i32 = 19;
pub(crate) const DELETE: i32 = 2;
pub(crate) const LIST: i32 = 8;
pub(crate) const GET: i32 = 4;
/// Not an answer, but the event of a watch.
const NEWS: i32 = -1;

/// What happens to the next request of a kind, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection ends, and the server never hears of it.
    Lost,
    /// The server does it, and the connection ends instead of the answer.
    AnswerLost,
    /// The server carries it out; from then on no data passes in either direction.
    AnswerSilenced,
    /// It waits until it is let go.
    Held,
    /// It waits until it is let go, and then is lost.
    HeldAndLost,
    /// The server gets a kind of request that it does not know, each time.
    Unknown,
}

/// A proxy in front of a server. It ends with its runtime.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    /// Counts up when all connections shall end.
    cuts: watch::Sender<u32>,
}

#[derive(Default)]
struct State {
    armed: Mutex<HashMap<i32, Fault>>,
    asked: Mutex<HashMap<i32, usize>>,
    connections: AtomicUsize,
    delay: watch::Sender<Duration>,
    loses_news: AtomicBool,
    /// How many events of watches were lost.
    news_lost: AtomicUsize,
    /// The path of the request that waits.
    held: watch::Sender<Option<String>>,
    is_silent: watch::Sender<bool>,
}

impl Line {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let line = Self { address, state: Arc::default(), cuts: watch::Sender::new(0) };
        let serving = line.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let line = serving.clone();
                line.state.connections.fetch_add(1, Ordering::SeqCst);
                let mut cuts = line.cuts.subscribe();
                tokio::spawn(async move {
                    tokio::select! {
                        // A connection that ends in an error has ended: its users see nothing else.
                        _ended = converse(client, server, &line.state) => {}
                        _cut = cuts.changed() => {}
                    }
                });
            }
        });
        line
    }

    pub(crate) fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// All connections stay, and new ones are accepted, but no data passes in either direction.
    pub(crate) fn silence(&self) {
        self.state.is_silent.send_replace(true);
    }

    /// New connections are as usual; the old ones end.
    pub(crate) fn heal(&self) {
        self.state.is_silent.send_replace(false);
        self.cut();
    }

    /// Each answer takes so much longer from now on.
    pub(crate) fn delay_answers(&self, delay: Duration) {
        self.state.delay.send_replace(delay);
    }

    /// The events of watches are lost from now on.
    pub(crate) fn lose_news(&self) {
        self.state.loses_news.store(true, Ordering::SeqCst);
    }

    pub(crate) fn news_lost(&self) -> usize {
        self.state.news_lost.load(Ordering::SeqCst)
    }

    pub(crate) fn arm(&self, operation: i32, fault: Fault) {
        lock(&self.state.armed).insert(operation, fault);
    }

    /// Whether the fault has not happened yet.
    pub(crate) fn is_armed(&self, operation: i32) -> bool {
        lock(&self.state.armed).contains_key(&operation)
    }

    /// The path of the request that is held, once there is one.
    pub(crate) async fn held(&self) -> String {
        let mut held = self.state.held.subscribe();
        held.wait_for(Option::is_some).await.expect("the line is there").clone().unwrap_or_default()
    }

    /// Lets go what is held.
    pub(crate) fn let_go(&self) {
        self.state.held.send_replace(None);
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// How many requests of a kind there were.
    pub(crate) fn asked(&self, operation: i32) -> usize {
        lock(&self.state.asked).get(&operation).copied().unwrap_or(0)
    }
}

impl State {
    fn fault(&self, operation: i32) -> Option<Fault> {
        *lock(&self.asked).entry(operation).or_default() += 1;
        let mut armed = lock(&self.armed);
        match armed.get(&operation) {
            Some(Fault::Unknown) => Some(Fault::Unknown),
            _ => armed.remove(&operation),
        }
    }
}

async fn converse(client: TcpStream, server: SocketAddr, state: &State) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let mut silent = state.is_silent.subscribe();
    // A new connection in the silence gets no answer.
    silent.wait_for(|is_silent| !is_silent).await.map_err(io::Error::other)?;
    let (mut from_server, mut to_server) = TcpStream::connect(server).await?.into_split();
    let doomed = Mutex::new(None);
    let asking = async {
        let mut is_greeting = true;
        loop {
            let mut frame = read_frame(&mut from_client).await?;
            let fault = if is_greeting { None } else { state.fault(number(&frame, 8)) };
            is_greeting = false;
            match fault {
                Some(Fault::Lost) => return Err(io::ErrorKind::ConnectionAborted.into()),
                Some(held @ (Fault::Held | Fault::HeldAndLost)) => {
                    let mut holding = state.held.subscribe();
                    state.held.send_replace(Some(path(&frame)));
                    holding.wait_for(Option::is_none).await.map_err(io::Error::other)?;
                    if held == Fault::HeldAndLost {
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                }
                Some(Fault::Unknown) => frame[8..12].copy_from_slice(&9_999_i32.to_be_bytes()),
                Some(fault) => *lock(&doomed) = Some((number(&frame, 4), fault)),
                None => {}
            }
            if !*state.is_silent.borrow() {
                to_server.write_all(&frame).await?;
            }
        }
    };
    let answering = async {
        let mut is_greeting = true;
        loop {
            let frame = read_frame(&mut from_server).await?;
            let delay = *state.delay.borrow();
            tokio::time::sleep(delay).await;
            let is_news = !is_greeting && number(&frame, 4) == NEWS;
            if is_news && state.loses_news.load(Ordering::SeqCst) {
                state.news_lost.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            let is_doomed = |(xid, _): &(i32, Fault)| !is_greeting && number(&frame, 4) == *xid;
            let fault = lock(&doomed).filter(is_doomed).map(|(_, fault)| fault);
            is_greeting = false;
            match fault {
                Some(Fault::AnswerSilenced) => drop(state.is_silent.send_replace(true)),
                Some(_) => return Err(io::ErrorKind::ConnectionAborted.into()),
                None => {}
            }
            if !*state.is_silent.borrow() {
                to_client.write_all(&frame).await?;
            }
        }
    };
    let ended: io::Result<((), ())> = tokio::try_join!(asking, answering);
    ended.map(drop)
}

/// One message, with its length in front.
async fn read_frame(stream: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.resize(4 + usize::try_from(length).map_err(io::Error::other)?, 0);
    stream.read_exact(&mut frame[4..]).await?;
    Ok(frame)
}

fn number(frame: &[u8], at: usize) -> i32 {
    frame.get(at..at + 4).map_or(0, |bytes| i32::from_be_bytes(bytes.try_into().unwrap_or([0; 4])))
}

/// What most requests begin with.
fn path(frame: &[u8]) -> String {
    let end = 16 + usize::try_from(number(frame, 12)).unwrap_or(0);
    String::from_utf8_lossy(frame.get(16..end).unwrap_or_default()).into_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
