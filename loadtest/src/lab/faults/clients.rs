//! Clients who close their connections in the middle of a purchase.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::{Scene, unseen, witness};
use crate::error::Result;
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
    done: Mutex<usize>,
}

impl HangUps {
    /// These users, each of whom asks once for the voucher there.
    pub fn new(authority: String, voucher: u64, users: Vec<User>) -> Self {
        Self { authority, voucher, users, done: Mutex::default() }
    }

    /// How many of them, the first ones, have asked and gone: what became of their orders nobody
    /// told them.
    pub fn done(&self) -> usize {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them.
    pub fn users(&self) -> &[User] {
        &self.users
    }
}

/// Witness: how many went after a part of the request, and how many before an answer.
pub(super) async fn hang_up(scene: &Scene<'_>) -> Result<String> {
    let clients = scene.hang_ups;
    let mut dice = Dice::of(scene.schedule.variation, "hang-ups");
    let (mut in_request, mut before_answer) = (0, 0);
    for user in &clients.users {
        let request = request(clients, user)?;
        let connected = timeout(CONNECTS_WITHIN, TcpStream::connect(&clients.authority)).await;
        let Ok(Ok(mut stream)) = connected else { continue };
        let whole = !dice.between(0, 4).is_multiple_of(4);
        let length = if whole { request.len() } else { request.len() * 3 / 4 };
        // Counted before it is sent: it may be executed from then on.
        *clients.done.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let _gone = stream.write_all(&request.as_bytes()[..length]).await;
        sleep(Duration::from_millis(dice.between(0, PATIENCE_MS))).await;
        drop(stream);
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

fn request(clients: &HangUps, user: &User) -> Result<String> {
    let token = user.authorization.to_str().map_err(|error| unseen(error.to_string()))?;
    let HangUps { authority, voucher, .. } = clients;
    let key = uuid::Uuid::new_v4();
    Ok(format!(
        "POST /api/vouchers/{voucher}/orders HTTP/1.1\r\nHost: {authority}\r\n\
         Authorization: {token}\r\nIdempotency-Key: {key}\r\nContent-Length: 0\r\n\r\n"
    ))
}
