//! A cache of verified tokens, so that the signature of each is checked once.
//!
//! A table of 262,144 slots in sets of 16. A token has one set, where it takes the slot of the
//! oldest, so the table's size is bounded and nothing has to be cleaned up. The key is half of
//! the token's SHA-256, and an entry counts until the second in which its token expires.
//!
//! Only verified tokens get a slot. Half a hash is enough: an attacker needs a text with the same
//! 128 bits as a token of another user, which is a second preimage. A pair of texts with equal bits
//! is easier to find, but one of them has to be signed here, for the attacker's own user.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ring::digest::{SHA256, digest};

use super::Identity;
use crate::domain::{Role, UserId};

/// Parts of the table, each with a mutex of its own; a part is allocated when it is first needed.
const PARTS: usize = 64;
/// Sets in a part. Sets are large enough that few tokens are displaced before the table is full.
const SETS: usize = 256;
/// Slots in a set, at 40 bytes.
const SLOTS: usize = 16;
/// Longer tokens are verified each time; those of this service are shorter.
const MAX_TOKEN_BYTES: usize = 512;

/// Half of a SHA-256.
type Digest = [u8; 16];

/// What a verified token says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VerifiedToken {
    pub(super) identity: Identity,
    /// When it was issued, in ms since 1970.
    pub(super) issued_ms: i64,
}

#[derive(Clone, Copy)]
struct TokenCacheEntry {
    digest: Digest,
    user: UserId,
    role: Role,
    issued_ms: i64,
    /// The first second since 1970 in which the token is no longer valid.
    ends: u32,
}

type Part = Vec<[Option<TokenCacheEntry>; SLOTS]>;

pub(super) struct VerifiedTokenCache {
    parts: [Mutex<Part>; PARTS],
}

/// The digest of a token, and the set that it belongs to.
pub(super) struct CacheSlot {
    digest: Digest,
    part: usize,
    set: usize,
}

impl CacheSlot {
    /// The slot of a token; `None` for a text that is never cached.
    pub(super) fn of(token: &str) -> Option<Self> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let digest: Digest = *digest(&SHA256, token.as_bytes()).as_ref().first_chunk()?;
        let [first, second, ..] = digest.map(usize::from);
        Some(Self { digest, part: first % PARTS, set: second % SETS })
    }
}

impl VerifiedTokenCache {
    pub(super) fn new() -> Self {
        Self { parts: std::array::from_fn(|_| Mutex::default()) }
    }

    /// What the token says, if it is cached and has not expired.
    pub(super) fn find(&self, slot: &CacheSlot, now: i64) -> Option<VerifiedToken> {
        let part = self.part(slot);
        let set = part.get(slot.set)?;
        let known = set.iter().flatten().find(|known| known.digest == slot.digest)?;
        let identity = Identity { user: known.user, role: known.role };
        let issued_ms = known.issued_ms;
        (now < known.ends.into()).then_some(VerifiedToken { identity, issued_ms })
    }

    pub(super) fn remember(&self, slot: &CacheSlot, token: VerifiedToken, ends: i64) {
        // The second fits until 2106.
        let Ok(ends) = u32::try_from(ends) else { return };
        let VerifiedToken { identity: Identity { user, role }, issued_ms } = token;
        let mut part = self.part(slot);
        part.resize(SETS, [None; SLOTS]);
        let set = &mut part[slot.set];
        set.rotate_right(1);
        set[0] = Some(TokenCacheEntry { digest: slot.digest, user, role, issued_ms, ends });
    }

    fn part(&self, slot: &CacheSlot) -> MutexGuard<'_, Part> {
        self.parts[slot.part].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_of(user: u64) -> VerifiedToken {
        VerifiedToken { identity: Identity { user: UserId(user), role: Role::Buyer }, issued_ms: 1 }
    }

    fn find(known: &VerifiedTokenCache, token: &str, now: i64) -> Option<VerifiedToken> {
        known.find(&CacheSlot::of(token)?, now)
    }

    #[test]
    fn a_token_is_known_as_a_whole_and_until_it_ends() {
        let known = VerifiedTokenCache::new();
        let identity = token_of(7);
        known.remember(&CacheSlot::of("a.token.of-seven").unwrap(), identity, 100);
        assert_eq!(find(&known, "a.token.of-seven", 99), Some(identity));
        assert_eq!(find(&known, "a.token.of-seven", 100), None, "it has ended");
        for other in ["a.token.of-seve", "a.token.of-sevem", "a.token.of-seven ", ""] {
            assert_eq!(find(&known, other, 99), None, "{other:?}");
        }
        assert!(CacheSlot::of(&"x".repeat(MAX_TOKEN_BYTES)).is_some());
        assert!(CacheSlot::of(&"x".repeat(MAX_TOKEN_BYTES + 1)).is_none());
    }

    #[test]
    fn no_token_of_a_set_stands_for_another_and_the_oldest_is_evicted() {
        let known = VerifiedTokenCache::new();
        let identity = token_of;
        let slot = |user: u8| CacheSlot { digest: [user; 16], part: 3, set: 5 };
        for user in 0..=16_u8 {
            assert_eq!(known.find(&slot(user), 1), None);
            known.remember(&slot(user), identity(user.into()), 100);
            assert_eq!(known.find(&slot(user), 1), Some(identity(user.into())));
        }
        assert_eq!(known.find(&slot(0), 1), None, "17 have 16 slots");
        for user in 1..=16_u8 {
            assert_eq!(known.find(&slot(user), 1), Some(identity(user.into())));
        }
    }

    #[test]
    fn many_tokens_take_the_places_of_others_and_never_their_names() {
        let known = VerifiedTokenCache::new();
        let slot = |user: u64| CacheSlot::of(&format!("token-{user}")).unwrap();
        let identity = token_of;
        let slots = PARTS * SETS * SLOTS;
        for user in 0..3 * slots as u64 {
            known.remember(&slot(user), identity(user), 100);
        }
        let found = |user: &u64| match known.find(&slot(*user), 1) {
            Some(found) => {
                assert_eq!(found, identity(*user));
                true
            }
            None => false,
        };
        let kept = (0..3 * slots as u64).filter(found).count();
        assert!((slots * 99 / 100..=slots).contains(&kept), "{kept} are kept");
    }

    #[test]
    fn a_place_is_as_large_as_it_says() {
        assert_eq!(size_of::<Option<TokenCacheEntry>>(), 40);
    }
}
