//! Clients who close their connections in the middle of a purchase.
//!
//! They speak to the replicas themselves. HAProxy would keep a request that is not whole, and go on
//! with one whose client has gone, so that no replica would ever notice that somebody went.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::{Scene, unseen, witness};
use crate::error::Result;
use crate::history::Recorder;
use crate::lab::dice::Dice;
use crate::load::tokens::User;

/// The longest wait before the end, in milliseconds.
const PATIENCE_MS: u64 = 40;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(15);
/// How long a client looks for a replica that takes his connection.
const CONNECTS_WITHIN: Duration = Duration::from_secs(2);
/// Of each replica's clients in turn, one goes in his request and one as soon as it may have been
/// read; the others have patience.
const WAYS: usize = 4;
/// How long it may take to be read, in microseconds. A ticket has come after two milliseconds.
const READ_US: (u64, u64) = (50, 300);
/// Fewest who must have gone before their answer.
const MIN_BEFORE_ANSWER: usize = 3;

/// Clients who are there to hang up, and when each of them did.
#[derive(Debug)]
pub struct HangUps {
    voucher: u64,
    users: Vec<User>,
    /// The clock of the round's history.
    clock: Recorder,
    gone: Mutex<Vec<Gone>>,
}

/// A client who has asked and gone: what became of the order nobody told him.
#[derive(Debug, Clone, Copy)]
pub struct Gone {
    /// The user's id.
    pub user: u64,
    /// The idempotency key that was sent.
    pub key: Uuid,
    /// When he began to send.
    pub sent_ns: u64,
    /// When he closed the connection.
    pub end_ns: u64,
    /// How far it had come by then.
    pub left: Left,
}

/// When a client goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// A part of his request was sent.
    InRequest,
    /// All of it was, and nothing had come back.
    BeforeAnswer,
    /// Something had come: his answer, or the end of the connection.
    AfterAnswer,
}

impl HangUps {
    /// These users, each of whom asks once for the voucher.
    pub fn new(voucher: u64, users: Vec<User>, clock: Recorder) -> Self {
        Self { voucher, users, clock, gone: Mutex::default() }
    }

    /// Those of them who have asked and gone.
    pub fn gone(&self) -> Vec<Gone> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One of them asks there and goes.
    async fn ask(&self, (user, key): (&User, Uuid), to: &mut To<'_>) -> Result<Option<Gone>> {
        let Some(mut stream) = to.connect().await else { return Ok(None) };
        let peer = stream.peer_addr().map_err(|error| unseen(error.to_string()))?;
        let request = request(self.voucher, user, (peer, key))?;
        let sent_ns = self.clock.now();
        // One that cannot be sent has no answer either, and is not counted as silent.
        let _gone = stream.write_all(&request.as_bytes()[..to.part_of(request.len())]).await;
        to.wait().await;
        let left = match (to.is_whole, is_silent(stream)) {
            (false, _) => Left::InRequest,
            (true, true) => Left::BeforeAnswer,
            (true, false) => Left::AfterAnswer,
        };
        Ok(Some(Gone { user: user.id, key, sent_ns, end_ns: self.clock.now(), left }))
    }
}

/// Where a client asks, and how he goes.
struct To<'a> {
    scene: &'a Scene<'a>,
    /// The replica that he tries first.
    replica: usize,
    is_whole: bool,
    /// Of a request that is not whole, where it ends.
    cut: u64,
    patience: Duration,
}

impl<'a> To<'a> {
    /// Replicas in turn, and on each of them the ways to go.
    fn of(scene: &'a Scene<'a>, number: usize, dice: &mut Dice) -> Self {
        let way = number / scene.deployment.replicas().len() % WAYS;
        let cut = dice.next();
        let patience = match way {
            1 => Duration::from_micros(dice.between(READ_US.0, READ_US.1)),
            _ => Duration::from_millis(dice.between(0, PATIENCE_MS)),
        };
        Self { scene, replica: number, is_whole: way != 0, cut, patience }
    }

    async fn wait(&self) {
        // The runtime's clock goes by the millisecond.
        if self.patience < Duration::from_millis(1) {
            thread::sleep(self.patience);
        } else {
            sleep(self.patience).await;
        }
    }

    /// So many bytes of a request of that length are sent.
    fn part_of(&self, length: usize) -> usize {
        let part = 1 + usize::try_from(self.cut).unwrap_or(0) % (length - 1);
        if self.is_whole { length } else { part }
    }

    /// A connection to his replica, or to the next one that takes it.
    async fn connect(&mut self) -> Option<TcpStream> {
        let replicas = self.scene.deployment.replicas();
        let deadline = Instant::now() + CONNECTS_WITHIN;
        while Instant::now() < deadline {
            let address = replicas[self.replica % replicas.len()].addr();
            match timeout(CONNECTS_WITHIN, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Some(stream),
                Ok(Err(_)) | Err(_) => sleep(PAUSE).await,
            }
            self.replica += 1;
        }
        None
    }
}

/// Witness: how many went after a part of the request, and how many before an answer.
pub(super) async fn hang_up(scene: &Scene<'_>) -> Result<String> {
    let clients = scene.hang_ups;
    let mut dice = Dice::of(scene.schedule.variation, "hang-ups");
    for (number, user) in clients.users.iter().enumerate() {
        let key = uuid::Builder::from_random_bytes(dice.bytes()).into_uuid();
        let mut to = To::of(scene, number, &mut dice);
        let gone = clients.ask((user, key), &mut to).await?;
        clients.gone.lock().unwrap_or_else(PoisonError::into_inner).extend(gone);
        sleep(PAUSE).await;
    }
    let gone = clients.gone();
    let count = |left| gone.iter().filter(|one| one.left == left).count();
    let (in_request, before) = (count(Left::InRequest), count(Left::BeforeAnswer));
    let text = format!(
        "{in_request} clients went in the middle of a request, {before} between it and its answer, \
         {} later",
        count(Left::AfterAnswer)
    );
    witness(in_request > 0 && before >= MIN_BEFORE_ANSWER, text)
}

/// Closes the connection; whether nothing had come that could be read, not even its end.
fn is_silent(stream: TcpStream) -> bool {
    let peeked = stream.into_std().and_then(|stream| stream.peek(&mut [0]));
    peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

fn request(voucher: u64, user: &User, (to, key): (SocketAddr, Uuid)) -> Result<String> {
    let token = user.authorization.to_str().map_err(|error| unseen(error.to_string()))?;
    Ok(format!(
        "POST /api/vouchers/{voucher}/orders HTTP/1.1\r\nHost: {to}\r\n\
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
    async fn a_client_went_before_the_answer_if_not_a_byte_of_it_could_be_read() {
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
