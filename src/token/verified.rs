//! Tokens that were verified already: of who asks again and again, the signature is checked once.
//!
//! A table of so many places, in which the last one stays; so its size is bounded and nothing has
//! to be cleaned away. A token is known by half of its SHA-256, so by each of its letters, at a
//! fraction of its length, and only until it ends, to the second. Only what was verified gets a
//! place. Half is enough: whoever wants to be taken for somebody else needs a text with the same
//! 128 bits as a token that he does not have, and two texts of his own with the same bits (which
//! are less hard to find) can only both be his, as long as one of them has to be signed here.

use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};

use super::Identity;
use crate::domain::{Role, UserId};

/// Parts of the table, each with a lock of its own; a part takes memory once it is needed.
const PARTS: usize = 64;
/// Places in a part, at 32 bytes.
const PLACES: usize = 2048;
/// Longer tokens than ours are verified each time.
const LONGEST: usize = 512;

/// Half of a SHA-256.
type Digest = [u8; 16];

#[derive(Clone, Copy)]
struct Verified {
    digest: Digest,
    user: UserId,
    role: Role,
    /// The first second in which it is good no more, of those since 1970.
    ends: u32,
}

type Part = Vec<Option<Verified>>;

pub(super) struct Known {
    parts: [Mutex<Part>; PARTS],
}

/// Where a token's place is.
pub(super) struct Place {
    digest: Digest,
    part: usize,
    index: usize,
}

impl Place {
    /// `None` for what is never known.
    pub(super) fn of(token: &str) -> Option<Self> {
        if token.len() > LONGEST {
            return None;
        }
        let digest: Digest = *digest(&SHA256, token.as_bytes()).as_ref().first_chunk()?;
        let [first, second, third, ..] = digest.map(usize::from);
        Some(Self { digest, part: first % PARTS, index: (second << 8 | third) % PLACES })
    }
}

impl Known {
    pub(super) fn new() -> Self {
        Self { parts: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Who the token of that place speaks for, if it is known and has not ended by then.
    pub(super) fn find(&self, place: &Place, now: i64) -> Option<Identity> {
        let known = self.part(place).get(place.index).copied().flatten()?;
        let identity = Identity { user: known.user, role: known.role };
        (known.digest == place.digest && now < known.ends.into()).then_some(identity)
    }

    pub(super) fn remember(&self, place: &Place, identity: Identity, ends: i64) {
        // In a hundred years none is remembered.
        let Ok(ends) = u32::try_from(ends) else { return };
        let Identity { user, role } = identity;
        let mut part = self.part(place);
        part.resize(PLACES, None);
        part[place.index] = Some(Verified { digest: place.digest, user, role, ends });
    }

    fn part(&self, place: &Place) -> MutexGuard<'_, Part> {
        self.parts[place.part].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(known: &Known, token: &str, now: i64) -> Option<Identity> {
        known.find(&Place::of(token)?, now)
    }

    #[test]
    fn a_token_is_known_as_a_whole_and_until_it_ends() {
        let known = Known::new();
        let identity = Identity { user: UserId(7), role: Role::Buyer };
        known.remember(&Place::of("a.token.of-seven").unwrap(), identity, 100);
        assert_eq!(find(&known, "a.token.of-seven", 99), Some(identity));
        assert_eq!(find(&known, "a.token.of-seven", 100), None, "it has ended");
        for other in ["a.token.of-seve", "a.token.of-sevem", "a.token.of-seven ", ""] {
            assert_eq!(find(&known, other, 99), None, "{other:?}");
        }
        assert!(Place::of(&"x".repeat(LONGEST)).is_some());
        assert!(Place::of(&"x".repeat(LONGEST + 1)).is_none());
    }

    #[test]
    fn of_two_tokens_in_one_place_neither_speaks_for_the_other() {
        let known = Known::new();
        let identity = |user| Identity { user: UserId(user), role: Role::Buyer };
        let place = |last| Place { digest: [last; 16], part: 3, index: 5 };
        known.remember(&place(1), identity(1), 100);
        assert_eq!(known.find(&place(2), 1), None);
        known.remember(&place(2), identity(2), 100);
        assert_eq!(known.find(&place(2), 1), Some(identity(2)));
        assert_eq!(known.find(&place(1), 1), None);
    }

    #[test]
    fn many_tokens_take_the_places_of_others_and_never_their_names() {
        let known = Known::new();
        let place = |user: u64| Place::of(&format!("token-{user}")).unwrap();
        let identity = |user| Identity { user: UserId(user), role: Role::Buyer };
        let places = PARTS * PLACES;
        for user in 0..3 * places as u64 {
            known.remember(&place(user), identity(user), 100);
        }
        let found = |user: &u64| match known.find(&place(*user), 1) {
            Some(found) => {
                assert_eq!(found, identity(*user));
                true
            }
            None => false,
        };
        // Of all places but those that nobody came to, one in e^3.
        let kept = (0..3 * places as u64).filter(found).count();
        assert!((places * 9 / 10..=places).contains(&kept), "{kept} are kept");
    }

    #[test]
    fn a_place_is_as_large_as_it_says() {
        assert_eq!(size_of::<Option<Verified>>(), 32);
    }
}
