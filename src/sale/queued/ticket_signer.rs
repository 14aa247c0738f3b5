//! Tickets that are verified without a round trip: 42 bits of each are a MAC over its time, voucher
//! and user. One guess in 4 * 10^12 is right.

use ring::hmac;
use secrecy::{ExposeSecret, SecretString};
use time::OffsetDateTime;

use crate::domain::{TicketId, UserId, VoucherId};

/// Makes and verifies tickets.
pub struct TicketSigner(hmac::Key);

impl TicketSigner {
    /// Seals with the secret that signs the access tokens. What is sealed is no token: it has
    /// spaces.
    pub fn new(secret: &SecretString) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret.expose_secret().as_bytes()))
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
        let tag = hmac::sign(&self.0, text.as_bytes());
        TicketId::compose(unix_ms, voucher, *tag.as_ref().first_chunk()?)
    }
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
    fn at_takes_the_first_bytes_of_an_hmac_over_time_voucher_and_user() {
        let signer = TicketSigner::new(&"a-secret-of-this-test".to_owned().into());
        // printf 'seckill ticket 1764000000000 3 7' | openssl dgst -sha256 -hmac "$secret"
        let bytes = [0xab, 0x60, 0x69, 0xaa, 0xde, 0x58];
        let ticket = TicketId::compose(1_764_000_000_000, VoucherId(3), bytes);
        assert!(ticket.is_some());
        assert_eq!(signer.at(1_764_000_000_000, UserId(7), VoucherId(3)), ticket);
    }
}
