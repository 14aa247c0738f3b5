//! Whether a token was signed by us: the compact form of a JWT (RFC 7515), HS256.
//!
//! Every buyer of a sale comes with a token that nobody has seen before, so this is part of every
//! order. `jsonwebtoken`, which signs ours, prepares the key anew for each token, and reads its
//! header and its claims twice; here the key is prepared once, and both are read once. Nothing of a
//! token is read before its signature was found to be right, and then only what ours say: no other
//! algorithm, no key that the token names itself. `tests/service/login/` holds it against the forms
//! of tokens that are known to have been accepted elsewhere.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// The whole header of our tokens: what we never write is not ours.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<'a> {
    typ: &'a str,
    alg: &'a str,
}

pub(super) struct Verifier(hmac::Key);

impl Verifier {
    pub(super) fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The claims, as JSON, of a token with our header and our signature.
    pub(super) fn claims(&self, token: &str) -> Option<Vec<u8>> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        hmac::verify(&self.0, message.as_bytes(), &decode(signature)?).ok()?;
        let header = decode(header)?;
        let Header { typ, alg } = object(&header)?;
        if typ == "JWT" && alg == "HS256" { decode(claims) } else { None }
    }
}

/// What a JSON object says, each field once. An array would do as well, with the fields by
/// position.
pub(super) fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    json.starts_with(b"{").then(|| serde_json::from_slice(json).ok()).flatten()
}

fn decode(base64: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(base64).ok()
}
