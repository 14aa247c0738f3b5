//! A forger's tools: tokens of any header and claims, signed by any secret.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac::{self, HMAC_SHA256};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::support::SECRET;

/// The header of the tokens that the service issues.
pub(super) const HEADER: &str = r#"{"typ":"JWT","alg":"HS256"}"#;

pub(super) fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

/// The claims of an admin's good token.
pub(super) fn claims() -> Value {
    json!({
        "sub": "1", "role": "admin", "iss": "seckill", "aud": "seckill-api",
        "iat": now(), "exp": now() + 3600,
    })
}

/// Good claims with one of another value; without it if that is `null`.
pub(super) fn claims_with(name: &str, value: Value) -> String {
    let mut claims = claims();
    let fields = claims.as_object_mut().expect("an object");
    if value.is_null() {
        fields.remove(name)
    } else {
        fields.insert(name.to_owned(), value)
    };
    claims.to_string()
}

/// A token of this header and these claims, signed as HS256 by this secret.
pub(super) fn sign_by(secret: &[u8], header: &str, claims: &str) -> String {
    sign_as(HMAC_SHA256, secret, header, claims)
}

/// Signs by an HMAC with any hash.
pub(super) fn sign_as(
    algorithm: hmac::Algorithm,
    secret: &[u8],
    header: &str,
    claims: &str,
) -> String {
    let message = format!("{}.{}", base64(header), base64(claims));
    let tag = hmac::sign(&hmac::Key::new(algorithm, secret), message.as_bytes());
    format!("{message}.{}", base64(tag))
}

/// Signed by the service's own secret: only what the token says is wrong with it.
pub(super) fn sign(header: &str, claims: &str) -> String {
    sign_by(SECRET.as_bytes(), header, claims)
}
