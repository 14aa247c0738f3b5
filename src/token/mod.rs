//! Access tokens: JWT, HS256 and nothing else, with issuer, audience and expiry, no leeway.

mod verified;

use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::domain::{Role, UserId};
use verified::{Known, Place};

const ISSUER: &str = "seckill";
const AUDIENCE: &str = "seckill-api";
/// The fewest bytes of a secret, as many as HS256 has.
const SECRET_BYTES: usize = 32;
/// The fewest different bytes: `aaaa...` is long, and no secret.
const DIFFERENT_BYTES: usize = 10;

/// Why a secret is refused: it is too short, or too regular.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} must have at least {SECRET_BYTES} bytes, {DIFFERENT_BYTES} of them different; \
     `openssl rand -base64 48` makes one"
)]
pub struct WeakSecret(&'static str);

/// Refuses a weak secret, by the name of its setting.
pub fn strong(name: &'static str, secret: &SecretString) -> Result<(), WeakSecret> {
    let bytes = secret.expose_secret().as_bytes();
    let different = bytes.iter().collect::<std::collections::BTreeSet<_>>().len();
    if bytes.len() < SECRET_BYTES || different < DIFFERENT_BYTES {
        return Err(WeakSecret(name));
    }
    Ok(())
}

/// Why a token speaks for nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadToken {
    /// It is signed with our secret, and has ended.
    Expired,
    /// It is none of ours, or not yet good.
    Invalid,
}

/// Who a token speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub user: UserId,
    /// What the user may do.
    pub role: Role,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    sub: String,
    role: String,
    iss: String,
    aud: String,
    iat: i64,
    exp: i64,
}

/// Signs and verifies tokens.
pub struct Tokens {
    signing: EncodingKey,
    verifying: DecodingKey,
    validation: Validation,
    known: Known,
}

impl Tokens {
    /// Tokens signed with that secret; a weak one is refused.
    pub fn new(secret: &SecretString) -> Result<Self, WeakSecret> {
        strong("JWT_SECRET", secret)?;
        let bytes = secret.expose_secret().as_bytes();
        let mut validation = Validation::new(Algorithm::HS256);
        validation.leeway = 0;
        // A token has ended at its `exp`, not a second later.
        validation.reject_tokens_expiring_in_less_than = 1;
        validation.validate_nbf = true;
        validation.set_issuer(&[ISSUER]);
        validation.set_audience(&[AUDIENCE]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        Ok(Self {
            signing: EncodingKey::from_secret(bytes),
            verifying: DecodingKey::from_secret(bytes),
            validation,
            known: Known::new(),
        })
    }

    /// A token for that identity, and when it ends (whole seconds).
    pub fn issue(
        &self,
        identity: Identity,
        life: Duration,
    ) -> Result<(String, OffsetDateTime), jsonwebtoken::errors::Error> {
        let now =
            OffsetDateTime::now_utc().replace_nanosecond(0).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let ends = now + life;
        let claims = Claims {
            sub: identity.user.to_string(),
            role: identity.role.as_str().to_owned(),
            iss: ISSUER.to_owned(),
            aud: AUDIENCE.to_owned(),
            iat: now.unix_timestamp(),
            exp: ends.unix_timestamp(),
        };
        Ok((encode(&Header::new(Algorithm::HS256), &claims, &self.signing)?, ends))
    }

    /// Who the token speaks for, if it is one of ours and has not ended.
    pub fn verify(&self, token: &str) -> Option<Identity> {
        self.judge(token).ok()
    }

    /// The same, and why not. A token whose signature is wrong has never expired.
    pub fn judge(&self, token: &str) -> Result<Identity, BadToken> {
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let place = Place::of(token);
        let known = place.as_ref().and_then(|place| self.known.find(place, now));
        known.map_or_else(|| self.judge_anew(token, place.as_ref()), Ok)
    }

    fn judge_anew(&self, text: &str, place: Option<&Place>) -> Result<Identity, BadToken> {
        // The library looks at the claims once the signature is right.
        let token =
            decode::<Claims>(text, &self.verifying, &self.validation).map_err(
                |error| match error.kind() {
                    ErrorKind::ExpiredSignature => BadToken::Expired,
                    _ => BadToken::Invalid,
                },
            )?;
        // Keys, compression, types: what we never write is not ours.
        if token.header != Header::new(Algorithm::HS256) {
            return Err(BadToken::Invalid);
        }
        let claims = token.claims;
        let user = claims.sub.parse().map_err(|_| BadToken::Invalid)?;
        let role = Role::from_name(&claims.role).ok_or(BadToken::Invalid)?;
        let identity = Identity { user, role };
        if let Some(place) = place {
            self.known.remember(place, identity, claims.exp);
        }
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        Tokens::new(&"0123456789abcdef0123456789abcdef".into()).unwrap()
    }

    #[test]
    fn a_token_speaks_for_its_user_until_it_ends_to_the_second() {
        let identity = Identity { user: UserId(7), role: Role::Buyer };
        let (token, _) = tokens().issue(identity, Duration::from_mins(1)).unwrap();
        assert_eq!(tokens().verify(&token), Some(identity));
        let (ended, _) = tokens().issue(identity, Duration::ZERO).unwrap();
        assert_eq!(tokens().verify(&ended), None, "no leeway");
        let other = Tokens::new(&"0123456789abcdef0123456789abcdeF".into()).unwrap();
        assert_eq!(other.verify(&token), None, "another secret");
        assert_eq!(tokens().judge(&ended), Err(BadToken::Expired));
        assert_eq!(other.judge(&ended), Err(BadToken::Invalid), "nobody knows whether it ended");
        // Remembered by the one that verified it, and ended all the same.
        let (tokens, now) = (tokens(), OffsetDateTime::now_utc().unix_timestamp());
        assert_eq!(tokens.judge(&token), Ok(identity));
        let place = Place::of(&token).unwrap();
        tokens.known.remember(&place, identity, now);
        assert_eq!(tokens.known.find(&place, now), None);
    }

    #[test]
    fn a_weak_secret_is_refused() {
        for weak in ["", "secret", "0123456789abcdef0123456789abcde", &"ab".repeat(40)] {
            assert!(Tokens::new(&weak.to_owned().into()).is_err(), "{weak:?}");
        }
    }
}
