//! Tokens that were verified already: of who asks again and again, the signature is checked once.
//!
//! A table of so many places, one for each hash, in which the last one stays; so its size is
//! bounded and nothing has to be cleaned away. A token is known only as a whole, letter by letter,
//! and only until it ends, to the second. Hashes are keyed by this process: nobody chooses his
//! place.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Identity;

/// Places, with a token of about 200 bytes each.
const PLACES: usize = 8192;
/// Longer tokens than ours are verified each time.
const LONGEST: usize = 512;

struct Verified {
    hash: u64,
    token: Box<str>,
    identity: Identity,
    /// The first second in which it is good no more.
    ends: i64,
}

pub(super) struct Known {
    places: Box<[Mutex<Option<Verified>>]>,
    hashes: RandomState,
}

impl Known {
    pub(super) fn new() -> Self {
        let places = std::iter::repeat_with(|| Mutex::new(None)).take(PLACES).collect();
        Self { places, hashes: RandomState::new() }
    }

    /// Who that token speaks for, if it is known and has not ended by then.
    pub(super) fn find(&self, token: &str, now: i64) -> Option<Identity> {
        let hash = self.hashes.hash_one(token);
        let place = self.place(hash);
        let known = place.as_ref()?;
        let is_it = known.hash == hash && *known.token == *token && now < known.ends;
        is_it.then_some(known.identity)
    }

    pub(super) fn remember(&self, token: &str, identity: Identity, ends: i64) {
        if token.len() <= LONGEST {
            let hash = self.hashes.hash_one(token);
            *self.place(hash) = Some(Verified { hash, token: token.into(), identity, ends });
        }
    }

    fn place(&self, hash: u64) -> MutexGuard<'_, Option<Verified>> {
        let index = usize::try_from(hash % PLACES as u64).unwrap_or(0);
        self.places[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Role, UserId};

    #[test]
    fn a_token_is_known_as_a_whole_and_until_it_ends() {
        let known = Known::new();
        let identity = Identity { user: UserId(7), role: Role::Buyer };
        known.remember("a.token.of-seven", identity, 100);
        assert_eq!(known.find("a.token.of-seven", 99), Some(identity));
        assert_eq!(known.find("a.token.of-seven", 100), None, "it has ended");
        for other in ["a.token.of-seve", "a.token.of-sevem", "a.token.of-seven ", ""] {
            assert_eq!(known.find(other, 99), None, "{other:?}");
        }
        let long = "x".repeat(LONGEST + 1);
        known.remember(&long, identity, 100);
        assert_eq!(known.find(&long, 99), None);
    }

    #[test]
    fn many_tokens_take_the_places_of_others_and_never_their_names() {
        let known = Known::new();
        let name = |user: u64| format!("token-{user}");
        let identity = |user| Identity { user: UserId(user), role: Role::Buyer };
        for user in 0..3 * PLACES as u64 {
            known.remember(&name(user), identity(user), 100);
        }
        let found = |user: &u64| match known.find(&name(*user), 1) {
            Some(found) => {
                assert_eq!(found, identity(*user));
                true
            }
            None => false,
        };
        let kept = (0..3 * PLACES as u64).filter(found).count();
        assert!((PLACES / 2..=PLACES).contains(&kept), "{kept} are kept");
    }
}
