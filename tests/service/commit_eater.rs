//! A proxy between the service and the database that loses what belongs to a COMMIT.
//!
//! It understands MySQL's packets far enough to see `COMMIT`: on an unencrypted connection every
//! packet has a header of three bytes of length and one of sequence, and a command is a packet
//! with sequence 0 whose first byte tells which. Every fault is counted, so that a test can show
//! that it happened.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::support::Place;

const HEADER: usize = 4;
const COM_QUERY: u8 = 3;

/// What happens to a COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meal {
    /// It is executed; then both sides are closed instead of being told.
    CutAnswer,
    /// It is executed; then the service sees a reset.
    ResetAnswer,
    /// It is executed, and the service hears nothing more, not even a close.
    LoseAnswer,
    /// It never arrives, and both sides are closed.
    CutRequest,
    /// It never arrives, and nobody hears anything more, not even a close.
    LoseRequest,
    /// It is sent on, and at once both sides are closed: it may be executed.
    CutBoth,
}

impl Meal {
    /// Whether the database gets the COMMIT and is given the time to execute it.
    pub(crate) fn is_executed(self) -> bool {
        matches!(self, Self::CutAnswer | Self::ResetAnswer | Self::LoseAnswer)
    }
}

/// The proxy; dropping it closes everything.
pub(crate) struct CommitEater {
    address: SocketAddr,
    shared: Arc<Shared>,
    _listener: AbortOnDropHandle<()>,
}

struct Shared {
    upstream: SocketAddr,
    /// For the next COMMIT only; with whether the database is unreachable from then on.
    next: Mutex<Option<(Meal, bool)>>,
    /// Every so many COMMITs are cut on both sides; 0 is never.
    cut_every: AtomicU64,
    /// While true nothing is open and nothing can be opened.
    outage: watch::Sender<bool>,
    latency_ms: AtomicU64,
    commit_delay_ms: AtomicU64,
    commits: AtomicU64,
    eaten: AtomicU64,
    turned_away: AtomicU64,
}

impl CommitEater {
    /// A proxy in front of the database of that place, and the place as seen through it.
    pub(crate) async fn before(place: &Place) -> (Self, Place) {
        let url = &place.database_url;
        let (head, rest) = url.split_once('@').expect("a user in the URL");
        let (address, database) = rest.split_once('/').expect("a database in the URL");
        let upstream = address.parse().expect("an address in the URL");
        let eater = Self::start(upstream).await;
        let through = Place {
            // Unencrypted, so that the packets can be read.
            database_url: format!("{head}@{}/{database}?ssl-mode=disabled", eater.address),
            redis_url: place.redis_url.clone(),
        };
        (eater, through)
    }

    async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            upstream,
            next: Mutex::default(),
            cut_every: AtomicU64::default(),
            outage: watch::Sender::new(false),
            latency_ms: AtomicU64::default(),
            commit_delay_ms: AtomicU64::default(),
            commits: AtomicU64::default(),
            eaten: AtomicU64::default(),
            turned_away: AtomicU64::default(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, _listener: AbortOnDropHandle::new(task) }
    }

    /// Eats the next COMMIT.
    pub(crate) fn arm(&self, meal: Meal) {
        *self.shared.next.lock().expect("no panic") = Some((meal, false));
    }

    /// The same; and from that moment the database cannot be reached.
    pub(crate) fn arm_with_outage(&self, meal: Meal) {
        *self.shared.next.lock().expect("no panic") = Some((meal, true));
    }

    /// Cuts both sides at every so manieth COMMIT; 0 is never.
    pub(crate) fn cut_every(&self, commits: u64) {
        self.shared.cut_every.store(commits, Ordering::Relaxed);
    }

    /// Lets the database be reached again.
    pub(crate) fn end_outage(&self) {
        self.shared.outage.send_replace(false);
    }

    /// How long everything takes on its way, in each direction.
    pub(crate) fn set_latency(&self, latency: Duration) {
        let ms = latency.as_millis().try_into().expect("a short time");
        self.shared.latency_ms.store(ms, Ordering::Relaxed);
    }

    /// How much longer a COMMIT takes on its way.
    pub(crate) fn delay_commits(&self, delay: Duration) {
        let ms = delay.as_millis().try_into().expect("a short time");
        self.shared.commit_delay_ms.store(ms, Ordering::Relaxed);
    }

    /// COMMITs that were seen.
    pub(crate) fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// COMMITs that were eaten.
    pub(crate) fn eaten(&self) -> u64 {
        self.shared.eaten.load(Ordering::Relaxed)
    }

    /// Connections that were turned away in an outage.
    pub(crate) fn turned_away(&self) -> u64 {
        self.shared.turned_away.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        if *shared.outage.borrow() {
            shared.turned_away.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            // A connection that ends in an error has ended: that is all either side sees.
            let _ended = serve(&shared, client).await;
        });
    }
}

/// How a connection goes on after a packet.
enum Next {
    GoOn,
    End,
    /// The service sees a reset.
    Reset,
    /// The service hears nothing more; the connection ends when the database ends it.
    Silence,
}

async fn serve(shared: &Shared, mut client: TcpStream) -> io::Result<()> {
    let mut server = TcpStream::connect(shared.upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut outage = shared.outage.subscribe();
    let reset = {
        let (mut from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let mut database = Database { from: from_server, to: to_server };
        tokio::select! {
            next = converse(shared, &mut from_client, to_client, &mut database) => {
                matches!(next?, Next::Reset)
            }
            _ = outage.wait_for(|on| *on) => false,
        }
    };
    if reset {
        client.set_zero_linger()?;
    }
    Ok(())
}

struct Database<'a> {
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
}

/// Passes everything on, packet by packet from the service, as it comes from the database.
async fn converse(
    shared: &Shared,
    from_client: &mut ReadHalf<'_>,
    mut to_client: WriteHalf<'_>,
    database: &mut Database<'_>,
) -> io::Result<Next> {
    let (mut said, mut answered) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            read = from_client.read_buf(&mut said) => {
                if read? == 0 {
                    return Ok(Next::End);
                }
                while let Some(packet) = take_packet(&mut said) {
                    match pass(shared, database, &packet).await? {
                        Next::GoOn => {}
                        Next::Silence => return silence(database).await,
                        end => return Ok(end),
                    }
                }
            }
            read = database.from.read(&mut answered) => {
                let count = read?;
                if count == 0 {
                    return Ok(Next::End);
                }
                wait(&shared.latency_ms).await;
                to_client.write_all(&answered[..count]).await?;
            }
        }
    }
}

/// Swallows what the database says until it ends the connection.
async fn silence(database: &mut Database<'_>) -> io::Result<Next> {
    tokio::io::copy(&mut database.from, &mut tokio::io::sink()).await?;
    Ok(Next::End)
}

async fn pass(shared: &Shared, database: &mut Database<'_>, packet: &[u8]) -> io::Result<Next> {
    wait(&shared.latency_ms).await;
    if !is_commit(packet) {
        database.to.write_all(packet).await?;
        return Ok(Next::GoOn);
    }
    let number = shared.commits.fetch_add(1, Ordering::Relaxed) + 1;
    wait(&shared.commit_delay_ms).await;
    let Some((meal, outage)) = shared.meal(number) else {
        database.to.write_all(packet).await?;
        return Ok(Next::GoOn);
    };
    if meal.is_executed() {
        database.to.write_all(packet).await?;
        // The answer, to be sure that it was executed; nobody is told.
        database.from.read_exact(&mut [0; HEADER]).await?;
    }
    if meal == Meal::CutBoth {
        database.to.write_all(packet).await?;
    }
    shared.eaten.fetch_add(1, Ordering::Relaxed);
    if outage {
        shared.outage.send_replace(true);
    }
    Ok(match meal {
        Meal::LoseAnswer | Meal::LoseRequest => Next::Silence,
        Meal::ResetAnswer => Next::Reset,
        Meal::CutAnswer | Meal::CutRequest | Meal::CutBoth => Next::End,
    })
}

impl Shared {
    fn meal(&self, number: u64) -> Option<(Meal, bool)> {
        let every = self.cut_every.load(Ordering::Relaxed);
        if every > 0 && number.is_multiple_of(every) {
            return Some((Meal::CutBoth, false));
        }
        self.next.lock().expect("no panic").take()
    }
}

/// The first packet with its header, if it is there to its end.
fn take_packet(said: &mut Vec<u8>) -> Option<Vec<u8>> {
    let header = said.get(..HEADER)?;
    let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    let end = HEADER + usize::try_from(length).ok()?;
    (said.len() >= end).then(|| said.drain(..end).collect())
}

fn is_commit(packet: &[u8]) -> bool {
    let Some((header, [COM_QUERY, sql @ ..])) = packet.split_at_checked(HEADER) else {
        return false;
    };
    header[3] == 0 && sql.trim_ascii().eq_ignore_ascii_case(b"COMMIT")
}

async fn wait(ms: &AtomicU64) {
    let ms = ms.load(Ordering::Relaxed);
    if ms > 0 {
        sleep(Duration::from_millis(ms)).await;
    }
}
