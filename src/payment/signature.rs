//! The signature of a callback: `t=<seconds since 1970>,v1=<HMAC-SHA256 in hex>`, over the time, a
//! full stop and the raw body. The time is signed with it, so that a captured callback is refused
//! after `WINDOW_S`; before that, a repeated callback changes nothing. The comparison takes the
//! same time wherever it fails.

use std::fmt::Write;
use std::sync::Arc;

use ring::hmac;
use secrecy::{ExposeSecret, SecretString};

use super::Unproven;
use crate::token::{WeakSecret, strong};

/// How far the provider's clock and ours may be apart, the way between them included, in seconds.
const WINDOW_S: i64 = 300;

/// Signs and verifies. Cheap to clone; the secret is never shown.
#[derive(Clone)]
pub(super) struct Signer(Arc<hmac::Key>);

impl Signer {
    pub(super) fn new(secret: &SecretString) -> Result<Self, WeakSecret> {
        strong("PAYMENT_SECRET", secret)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose_secret().as_bytes());
        Ok(Self(Arc::new(key)))
    }

    pub(super) fn sign(&self, body: &[u8], now: i64) -> String {
        let tag = hmac::sign(&self.0, &signed(body, now));
        let mut signature = format!("t={now},v1=");
        for byte in tag.as_ref() {
            // Writing to a string cannot fail.
            let _always = write!(signature, "{byte:02x}");
        }
        signature
    }

    pub(super) fn verify(&self, body: &[u8], signature: &[u8], now: i64) -> Result<(), Unproven> {
        let (time, tag) = parse(signature).ok_or(Unproven)?;
        hmac::verify(&self.0, &signed(body, time), &tag).map_err(|_| Unproven)?;
        if now.abs_diff(time) > WINDOW_S.unsigned_abs() { Err(Unproven) } else { Ok(()) }
    }
}

fn signed(body: &[u8], time: i64) -> Vec<u8> {
    [time.to_string().as_bytes(), b".", body].concat()
}

/// The time and the tag, if the header is spelled exactly as `sign` does.
fn parse(signature: &[u8]) -> Option<(i64, [u8; 32])> {
    let (time, hex) = std::str::from_utf8(signature).ok()?.split_once(",v1=")?;
    let digits = time.strip_prefix("t=")?;
    let plain = digits.len() <= 12 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let time = digits.parse().ok().filter(|_| plain)?;
    let mut tag = [0; 32];
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if hex.len() != 2 * tag.len() || !hex.bytes().all(is_hex) {
        return None;
    }
    for (byte, pair) in tag.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some((time, tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn signer(secret: &str) -> Signer {
        Signer::new(&secret.to_owned().into()).unwrap()
    }

    #[test]
    fn only_the_secret_the_body_and_a_time_near_now_prove_a_callback() {
        let ours = signer("0123456789abcdef0123456789abcdef");
        let good = ours.sign(b"paid", NOW);
        assert_eq!(ours.verify(b"paid", good.as_bytes(), NOW), Ok(()));
        for apart in [-WINDOW_S, WINDOW_S] {
            assert_eq!(ours.verify(b"paid", good.as_bytes(), NOW + apart), Ok(()), "{apart}");
        }
        for apart in [-WINDOW_S - 1, WINDOW_S + 1, -NOW] {
            assert_eq!(ours.verify(b"paid", good.as_bytes(), NOW + apart), Err(Unproven));
        }
        assert_eq!(ours.verify(b"paie", good.as_bytes(), NOW), Err(Unproven), "another body");
        let later = good.replace(&NOW.to_string(), &(NOW + 1).to_string());
        assert_eq!(ours.verify(b"paid", later.as_bytes(), NOW), Err(Unproven), "another time");
        let other = signer("0123456789abcdef0123456789abcdeF").sign(b"paid", NOW);
        assert_eq!(ours.verify(b"paid", other.as_bytes(), NOW), Err(Unproven), "another secret");
    }

    #[test]
    fn a_signature_is_spelled_in_one_way() {
        let ours = signer("0123456789abcdef0123456789abcdef");
        let good = ours.sign(b"paid", NOW);
        let bad = [
            String::new(),
            "t=,v1=".to_owned(),
            good.to_uppercase(),
            format!("{good}0"),
            format!("{good},v1=00"),
            format!(" {good}"),
            good.replace("t=", "t=+"),
            good.replace("t=", "t=0000"),
            good.replace(',', ", "),
            good[..good.len() - 1].to_owned(),
        ];
        for bad in bad {
            assert_eq!(ours.verify(b"paid", bad.as_bytes(), NOW), Err(Unproven), "{bad:?}");
        }
        assert_eq!(ours.verify(b"paid", b"\xff\xfe", NOW), Err(Unproven));
    }

    #[test]
    fn a_signature_equals_that_of_other_implementations() {
        // openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef of "1800000000.paid"
        let expected = "1f0c485ce8d1e126efc88b80b09a077e8268a5a07ed73c4c53d599426ab91ccd";
        let ours = signer("0123456789abcdef0123456789abcdef");
        assert_eq!(ours.sign(b"paid", NOW), format!("t={NOW},v1={expected}"));
    }
}
