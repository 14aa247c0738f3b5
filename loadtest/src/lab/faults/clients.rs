//! Clients who close their connections in the middle of a purchase.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
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
const CONNECTS_WITHIN: Duration = Duration::from_secs(2);

/// Clients who are there to hang up, and when each of them did.
#[derive(Debug)]
pub struct HangUps {
    /// Host and port that they speak to.
    authority: String,
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
}

impl HangUps {
    /// These users, each of whom asks once for the voucher there.
    pub fn new(authority: String, voucher: u64, users: Vec<User>, clock: Recorder) -> Self {
        Self { authority, voucher, users, clock, gone: Mutex::default() }
    }

    /// Those of them who have asked and gone.
    pub fn gone(&self) -> Vec<Gone> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Witness: how many went after a part of the request, and how many before an answer.
pub(super) async fn hang_up(scene: &Scene<'_>) -> Result<String> {
    let clients = scene.hang_ups;
    let mut dice = Dice::of(scene.schedule.variation, "hang-ups");
    let (mut in_request, mut before_answer) = (0, 0);
    for user in &clients.users {
        let key = uuid::Builder::from_random_bytes(dice.bytes()).into_uuid();
        let request = request(clients, user, key)?;
        let connected = timeout(CONNECTS_WITHIN, TcpStream::connect(&clients.authority)).await;
        let Ok(Ok(mut stream)) = connected else { continue };
        let whole = !dice.between(0, 4).is_multiple_of(4);
        let length = if whole { request.len() } else { request.len() * 3 / 4 };
        let sent_ns = clients.clock.now();
        let _gone = stream.write_all(&request.as_bytes()[..length]).await;
        sleep(Duration::from_millis(dice.between(0, PATIENCE_MS))).await;
        drop(stream);
        let gone = Gone { user: user.id, key, sent_ns, end_ns: clients.clock.now() };
        clients.gone.lock().unwrap_or_else(PoisonError::into_inner).push(gone);
        if whole {
            before_answer += 1;
        } else {
            in_request += 1;
        }
        sleep(PAUSE).await;
    }
    let text =
        format!("{in_request} clients went in the middle of a request, {before_answer} after it");
    witness(in_request > 0 && before_answer > 0, text)
}

fn request(clients: &HangUps, user: &User, key: Uuid) -> Result<String> {
    let token = user.authorization.to_str().map_err(|error| unseen(error.to_string()))?;
    let HangUps { authority, voucher, .. } = clients;
    Ok(format!(
        "POST /api/vouchers/{voucher}/orders HTTP/1.1\r\nHost: {authority}\r\n\
         Authorization: {token}\r\nIdempotency-Key: {key}\r\nContent-Length: 0\r\n\r\n"
    ))
}
