//! Access tokens: JWT with HS256 only, with issuer, audience and expiry, and no leeway.

mod hs256;
mod revocations;
mod verified_token_cache;

use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::domain::{Role, UserId};
pub use revocations::{RevocationMap, Revocations};
use verified_token_cache::{CacheSlot, VerifiedToken, VerifiedTokenCache};

const ISSUER: &str = "seckill";
const AUDIENCE: &str = "seckill-api";
/// The fewest bytes of a secret, as many as the hash of HS256 has.
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

/// Refuses a weak secret; the error has the name of its setting.
pub fn strong(name: &'static str, secret: &SecretString) -> Result<(), WeakSecret> {
    let bytes = secret.expose_secret().as_bytes();
    let different = bytes.iter().collect::<std::collections::BTreeSet<_>>().len();
    if bytes.len() < SECRET_BYTES || different < DIFFERENT_BYTES {
        return Err(WeakSecret(name));
    }
    Ok(())
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadToken {
    /// It is signed with this service's secret, and has expired.
    Expired,
    /// It is not one of this service's tokens, or is not valid yet.
    Invalid,
    /// It was revoked: its user has logged out, or was deleted.
    Revoked,
    /// It is valid, but the revocations cannot be read.
    Unchecked,
}

/// The user and role that a token names.
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
    /// `iat` in ms by the database's clock, which revocations go by. Tokens of earlier versions
    /// have none.
    #[serde(default)]
    iat_ms: Option<i64>,
}

/// Signs and verifies tokens.
pub struct Tokens {
    signing: EncodingKey,
    verifying: DecodingKey,
    validation: Validation,
    cache: VerifiedTokenCache,
    revocations: Arc<Revocations>,
    /// Age from which a token is refused, in seconds.
    max_age_s: i64,
}

impl Tokens {
    /// Tokens signed with that secret; a weak one is refused.
    pub fn new(secret: &SecretString) -> Result<Self, WeakSecret> {
        strong("JWT_SECRET", secret)?;
        hs256::install();
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
            cache: VerifiedTokenCache::new(),
            revocations: Arc::default(),
            max_age_s: i64::MAX,
        })
    }

    /// Refuses tokens from that age on, whatever their expiry.
    #[must_use]
    pub fn with_max_age(self, seconds: u32) -> Self {
        Self { max_age_s: seconds.into(), ..self }
    }

    /// The revocations that tokens are checked against.
    pub fn revocations(&self) -> Arc<Revocations> {
        Arc::clone(&self.revocations)
    }

    /// Issues a token now, by the clock of this machine; see [`Self::issue_at`].
    pub fn issue(
        &self,
        identity: Identity,
        life: Duration,
    ) -> Result<(String, OffsetDateTime), jsonwebtoken::errors::Error> {
        let now = OffsetDateTime::now_utc();
        self.issue_at(identity, life, now.unix_timestamp() * 1000 + i64::from(now.millisecond()))
    }

    /// Issues a token for that identity; returns it with its expiry in whole seconds. `issued_ms`
    /// is the time of issue in ms since 1970, by the database's clock.
    pub fn issue_at(
        &self,
        identity: Identity,
        life: Duration,
        issued_ms: i64,
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
            iat_ms: Some(issued_ms),
        };
        Ok((encode(&Header::new(Algorithm::HS256), &claims, &self.signing)?, ends))
    }

    /// The identity of a valid token; `None` for every other text.
    pub fn verify(&self, token: &str) -> Option<Identity> {
        self.judge(token).ok()
    }

    /// The identity of a valid token, or why it is refused. Only a token with a valid signature can
    /// be refused as expired.
    pub fn judge(&self, token: &str) -> Result<Identity, BadToken> {
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let slot = CacheSlot::of(token);
        let known = slot.as_ref().and_then(|slot| self.cache.find(slot, now));
        let verified = known.map_or_else(|| self.judge_anew(token, (slot.as_ref(), now)), Ok)?;
        self.revocations.check(verified.identity.user, verified.issued_ms)?;
        Ok(verified.identity)
    }

    fn judge_anew(
        &self,
        text: &str,
        (slot, now): (Option<&CacheSlot>, i64),
    ) -> Result<VerifiedToken, BadToken> {
        // The library checks the signature before the claims.
        let token =
            decode::<Claims>(text, &self.verifying, &self.validation).map_err(
                |error| match error.kind() {
                    ErrorKind::ExpiredSignature => BadToken::Expired,
                    _ => BadToken::Invalid,
                },
            )?;
        // Key ids, compression, types: this service writes no other header.
        if token.header != Header::new(Algorithm::HS256) {
            return Err(BadToken::Invalid);
        }
        let claims = token.claims;
        let user = claims.sub.parse().map_err(|_| BadToken::Invalid)?;
        let role = Role::from_name(&claims.role).ok_or(BadToken::Invalid)?;
        let identity = Identity { user, role };
        let issued_ms = claims.iat_ms.unwrap_or(claims.iat.saturating_mul(1000));
        // The earlier of the two counts, so that a wrong `iat` does not keep an old token valid.
        let second = claims.iat.min(issued_ms / 1000);
        let ends = claims.exp.min(second.saturating_add(self.max_age_s));
        if now >= ends {
            return Err(BadToken::Expired);
        }
        let verified = VerifiedToken { identity, issued_ms };
        if let Some(slot) = slot {
            self.cache.remember(slot, verified, ends);
        }
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        Tokens::new(&"0123456789abcdef0123456789abcdef".into()).unwrap()
    }

    #[test]
    fn a_token_is_valid_for_its_user_until_it_ends_to_the_second() {
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
        let slot = CacheSlot::of(&token).unwrap();
        let verified = tokens.cache.find(&slot, now).expect("it was verified");
        tokens.cache.remember(&slot, verified, now);
        assert_eq!(tokens.cache.find(&slot, now), None);
    }

    #[test]
    fn a_token_ends_at_the_highest_age_also_if_it_is_known() {
        let identity = Identity { user: UserId(7), role: Role::Buyer };
        let tokens = tokens().with_max_age(60);
        let now_ms = OffsetDateTime::now_utc().unix_timestamp() * 1000;
        let (fresh, _) = tokens.issue_at(identity, Duration::from_hours(1), now_ms).unwrap();
        let (old, _) = tokens.issue_at(identity, Duration::from_hours(1), now_ms - 61_000).unwrap();
        assert_eq!(tokens.judge(&fresh), Ok(identity));
        assert_eq!(tokens.judge(&old), Err(BadToken::Expired));
        let slot = CacheSlot::of(&fresh).unwrap();
        assert!(tokens.cache.find(&slot, now_ms / 1000 + 59).is_some());
        assert_eq!(tokens.cache.find(&slot, now_ms / 1000 + 60), None);
    }

    #[test]
    fn a_known_token_is_refused_once_it_is_revoked_and_a_later_one_is_good() {
        let identity = Identity { user: UserId(7), role: Role::Buyer };
        let tokens = tokens();
        let now_ms = OffsetDateTime::now_utc().unix_timestamp() * 1000;
        let issue = |ms| tokens.issue_at(identity, Duration::from_mins(1), ms).unwrap().0;
        let (before, after) = (issue(now_ms), issue(now_ms + 1));
        assert_eq!(tokens.judge(&before), Ok(identity));
        let mut map = RevocationMap::default();
        map.add(Some(UserId(7)), now_ms);
        tokens.revocations().replace(map);
        assert_eq!(tokens.judge(&before), Err(BadToken::Revoked));
        assert_eq!(tokens.judge(&after), Ok(identity), "in the same second");
    }

    #[test]
    fn a_weak_secret_is_refused() {
        for weak in ["", "secret", "0123456789abcdef0123456789abcde", &"ab".repeat(40)] {
            assert!(Tokens::new(&weak.to_owned().into()).is_err(), "{weak:?}");
        }
    }
}
