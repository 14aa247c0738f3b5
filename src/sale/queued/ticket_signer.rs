//! Tickets that are verified without a round trip: 42 bits of each are a MAC over its time, voucher
//! and user. One guess in 4 * 10^12 is right.

use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use secrecy::{ExposeSecret, SecretString};
use time::OffsetDateTime;

use crate::domain::{TicketId, UserId, VoucherId};

/// Makes and verifies tickets.
pub struct TicketSigner(EncodingKey);

impl TicketSigner {
    /// Seals with the secret that heartbeats the access tokens. What is sealed is no token: it has
    /// spaces.
    pub fn new(secret: &SecretString) -> Self {
        Self(EncodingKey::from_secret(secret.expose_secret().as_bytes()))
    }

    /// A new ticket; `None` if the voucher id is too large for one.
    pub(super) fn ticket(&self, user: UserId, voucher: VoucherId) -> Option<TicketId> {
        let now = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
        self.at(u64::try_from(now).ok()?, user, voucher)
    }

    /// Whether the ticket was made for that user.
    pub(super) fn is_of(&self, ticket: TicketId, user: UserId) -> bool {
        self.at(ticket.unix_ms(), user, ticket.voucher()) == Some(ticket)
    }

    fn at(&self, unix_ms: u64, user: UserId, voucher: VoucherId) -> Option<TicketId> {
        let text = format!("seckill ticket {unix_ms} {voucher} {user}");
        let code = crypto::sign(text.as_bytes(), &self.0, Algorithm::HS256).ok()?;
        TicketId::compose(unix_ms, voucher, first_bytes(&code)?)
    }
}

/// The first six bytes of a text in base64 for URLs.
fn first_bytes(code: &str) -> Option<[u8; 6]> {
    let mut bits = 0_u64;
    for character in code.bytes().take(8) {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u64::from(value);
    }
    let [_, _, bytes @ ..] = bits.to_be_bytes();
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_of_accepts_a_ticket_with_its_own_user_and_secret_only() {
        let signer = |secret: &str| TicketSigner::new(&secret.to_owned().into());
        let (ours, theirs) = (signer("a-secret-of-this-test"), signer("another-secret"));
        let ticket = ours.ticket(UserId(7), VoucherId(3)).unwrap();
        assert!(ours.is_of(ticket, UserId(7)));
        assert!(!ours.is_of(ticket, UserId(8)));
        assert!(!theirs.is_of(ticket, UserId(7)));
        assert_eq!(ticket.voucher(), VoucherId(3));
        let mut other_voucher = *ticket.as_bytes();
        other_voucher[15] ^= 1;
        assert!(!ours.is_of(TicketId::from_bytes(other_voucher).unwrap(), UserId(7)));
    }

    #[test]
    fn first_bytes_decodes_base64_for_urls() {
        assert_eq!(first_bytes("AAAAAAABrest"), Some([0, 0, 0, 0, 0, 1]));
        assert_eq!(first_bytes("________"), Some([255; 6]));
        assert_eq!(first_bytes("-_09AZaz"), Some([0xfb, 0xfd, 0x3d, 0x01, 0x96, 0xb3]));
        assert_eq!(first_bytes("+AAAAAAA"), None);
    }
}
