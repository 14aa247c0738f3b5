//! Clients that close their connections in the middle of a purchase.
//!
//! They connect to the replicas directly. HAProxy would keep an incomplete request, and finish one
//! whose client has closed its connection, so that no replica would notice either.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use loadtest_load::history::Recorder;
use loadtest_load::tokens::User;
use loadtest_measure::error::Result;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::{FaultContext, no_witness, witness};
use crate::seeded_rng::SeededRng;

/// The longest wait before the end, in milliseconds.
const MAX_WAIT_MS: u64 = 40;
/// Between two of them.
const CLIENT_INTERVAL: Duration = Duration::from_millis(15);
/// How long a client tries to find a replica that accepts its connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Of each replica's clients in turn, one aborts within its request and one as soon as the request
/// may have been read; the other two wait longer.
const ABORT_VARIANTS: usize = 4;
/// How long it may take to be read, in microseconds. A ticket has come after two milliseconds.
const READ_DELAY_US: (u64, u64) = (50, 300);
/// The least number of clients that must have left before their answer.
const MIN_BEFORE_ANSWER: usize = 3;

/// Clients who are there to hang up, and when each of them did.
#[derive(Debug)]
pub struct AbortingClients {
    voucher: u64,
    users: Vec<User>,
    /// The clock of the round's history.
    clock: Recorder,
    aborted: Mutex<Vec<AbortedClient>>,
}

/// A client that closed its connection before it got the outcome.
#[derive(Debug, Clone, Copy)]
pub struct AbortedClient {
    /// The user's id.
    pub user: u64,
    /// The idempotency key that was sent.
    pub key: Uuid,
    /// When sending began.
    pub sent_ns: u64,
    /// When the connection was closed.
    pub end_ns: u64,
    /// How far it had come by then.
    pub abort_point: AbortPoint,
}

/// When a client goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortPoint {
    /// A part of the request was sent.
    InRequest,
    /// All of it was, and nothing had come back.
    BeforeAnswer,
    /// Something had arrived: the answer, or the end of the connection.
    AfterAnswer,
}

impl AbortingClients {
    /// Clients for these users, each of which asks once for the voucher.
    pub fn new(voucher: u64, users: Vec<User>, clock: Recorder) -> Self {
        Self { voucher, users, clock, aborted: Mutex::default() }
    }

    /// The clients that have asked and closed their connection.
    pub fn aborted(&self) -> Vec<AbortedClient> {
        self.aborted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends one request, or a part of it, and closes the connection.
    async fn ask(
        &self,
        (user, key): (&User, Uuid),
        attempt: &mut AbortAttempt<'_>,
    ) -> Result<Option<AbortedClient>> {
        let Some(mut stream) = attempt.connect().await else { return Ok(None) };
        let peer = stream.peer_addr().map_err(|error| no_witness(error.to_string()))?;
        let request = request(self.voucher, user, (peer, key))?;
        let sent_ns = self.clock.now();
        // One that cannot be sent has no answer either, and is not counted as silent.
        let _gone = stream.write_all(&request.as_bytes()[..attempt.part_of(request.len())]).await;
        attempt.wait().await;
        let abort_point = match (attempt.is_whole, is_silent(stream)) {
            (false, _) => AbortPoint::InRequest,
            (true, true) => AbortPoint::BeforeAnswer,
            (true, false) => AbortPoint::AfterAnswer,
        };
        Ok(Some(AbortedClient {
            user: user.id,
            key,
            sent_ns,
            end_ns: self.clock.now(),
            abort_point,
        }))
    }
}

/// One request that is aborted: where it goes, and when it is cut.
struct AbortAttempt<'a> {
    context: &'a FaultContext<'a>,
    /// The replica that is tried first.
    replica: usize,
    is_whole: bool,
    /// Where an incomplete request is cut.
    cut_at: u64,
    wait_before_abort: Duration,
}

impl<'a> AbortAttempt<'a> {
    /// Takes replicas in turn, and the abort variants on each of them.
    fn of(context: &'a FaultContext<'a>, number: usize, rng: &mut SeededRng) -> Self {
        let variant = number / context.deployment.replicas().len() % ABORT_VARIANTS;
        let cut_at = rng.next();
        let wait_before_abort = match variant {
            1 => Duration::from_micros(rng.between(READ_DELAY_US.0, READ_DELAY_US.1)),
            _ => Duration::from_millis(rng.between(0, MAX_WAIT_MS)),
        };
        Self { context, replica: number, is_whole: variant != 0, cut_at, wait_before_abort }
    }

    async fn wait(&self) {
        // The runtime's clock goes by the millisecond.
        if self.wait_before_abort < Duration::from_millis(1) {
            thread::sleep(self.wait_before_abort);
        } else {
            sleep(self.wait_before_abort).await;
        }
    }

    /// How many bytes of a request of that length are sent.
    fn part_of(&self, length: usize) -> usize {
        let part = 1 + usize::try_from(self.cut_at).unwrap_or(0) % (length - 1);
        if self.is_whole { length } else { part }
    }

    /// A connection to the chosen replica, or to the next one that accepts it.
    async fn connect(&mut self) -> Option<TcpStream> {
        let replicas = self.context.deployment.replicas();
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        while Instant::now() < deadline {
            let address = replicas[self.replica % replicas.len()].addr();
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Some(stream),
                Ok(Err(_)) | Err(_) => sleep(CLIENT_INTERVAL).await,
            }
            self.replica += 1;
        }
        None
    }
}

/// Witness: how many went after a part of the request, and how many before an answer.
pub(super) async fn hang_up(context: &FaultContext<'_>) -> Result<String> {
    let clients = context.aborting_clients;
    let mut rng = SeededRng::of(context.schedule.variation, "hang-ups");
    for (number, user) in clients.users.iter().enumerate() {
        let key = uuid::Builder::from_random_bytes(rng.bytes()).into_uuid();
        let mut attempt = AbortAttempt::of(context, number, &mut rng);
        let aborted = clients.ask((user, key), &mut attempt).await?;
        clients.aborted.lock().unwrap_or_else(PoisonError::into_inner).extend(aborted);
        sleep(CLIENT_INTERVAL).await;
    }
    let aborted = clients.aborted();
    let count = |abort_point| aborted.iter().filter(|one| one.abort_point == abort_point).count();
    let (in_request, before) = (count(AbortPoint::InRequest), count(AbortPoint::BeforeAnswer));
    let text = format!(
        "{in_request} clients went in the middle of a request, {before} between it and its answer, \
         {} later",
        count(AbortPoint::AfterAnswer)
    );
    witness(in_request > 0 && before >= MIN_BEFORE_ANSWER, text)
}

/// Closes the connection; whether nothing had come that could be read, not even its end.
fn is_silent(stream: TcpStream) -> bool {
    let peeked = stream.into_std().and_then(|stream| stream.peek(&mut [0]));
    peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

fn request(voucher: u64, user: &User, (attempt, key): (SocketAddr, Uuid)) -> Result<String> {
    let token = user.authorization.to_str().map_err(|error| no_witness(error.to_string()))?;
    Ok(format!(
        "POST /api/vouchers/{voucher}/orders HTTP/1.1\r\nHost: {attempt}\r\n\
         Authorization: {token}\r\nIdempotency-Key: {key}\r\nContent-Length: 0\r\n\r\n"
    ))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A connection, and what stands at its other end.
    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.expect("connected"), far.expect("accepted").0)
    }

    #[tokio::test]
    async fn a_client_left_before_the_answer_if_no_byte_of_it_could_be_read() {
        let (near, far) = connected().await;
        assert!(is_silent(near), "nothing came");
        drop(far);
        let (near, mut far) = connected().await;
        far.write_all(b"H").await.expect("sent");
        near.readable().await.expect("it came");
        assert!(!is_silent(near), "the answer had begun to come");
        let (near, far) = connected().await;
        drop(far);
        near.readable().await.expect("it ended");
        assert!(!is_silent(near), "the replica was the first to go");
    }
}
