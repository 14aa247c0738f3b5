//! Tokens that were verified already: of a user who asks again and again, the signature is checked
//! once.
//!
//! A table of 262,144 places in sets of 16. A token has one set, where it takes the place of the
//! oldest, so the table's size is bounded and nothing has to be cleaned away. A token is known by
//! half of its SHA-256, so by each of its letters, at a fraction of its length, and only until it
//! ends, to the second. Only what was verified gets a place. Half is enough: to be taken for
//! another user takes a text with the same 128 bits as a token that one does not have. Two texts
//! with the same bits (which are less hard to find) are of one user, as long as one of them has to
//! be signed here.

use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};

use super::Identity;
use crate::domain::{Role, UserId};

/// Parts of the table, each with a lock of its own; a part takes memory once it is needed.
const PARTS: usize = 64;
/// Sets in a part. A set has so many places that few tokens are displaced before the table is full.
const SETS: usize = 256;
/// Places in a set, at 32 bytes.
const PLACES: usize = 16;
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

type Part = Vec<[Option<Verified>; PLACES]>;

pub(super) struct Known {
    parts: [Mutex<Part>; PARTS],
}

/// Where a token's place is.
pub(super) struct Place {
    digest: Digest,
    part: usize,
    set: usize,
}

impl Place {
    /// `None` for what is never known.
    pub(super) fn of(token: &str) -> Option<Self> {
        if token.len() > LONGEST {
            return None;
        }
        let digest: Digest = *digest(&SHA256, token.as_bytes()).as_ref().first_chunk()?;
        let [first, second, ..] = digest.map(usize::from);
        Some(Self { digest, part: first % PARTS, set: second % SETS })
    }
}

impl Known {
    pub(super) fn new() -> Self {
        Self { parts: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Who the token of that place speaks for, if it is known and has not ended by then.
    pub(super) fn find(&self, place: &Place, now: i64) -> Option<Identity> {
        let part = self.part(place);
        let set = part.get(place.set)?;
        let known = set.iter().flatten().find(|known| known.digest == place.digest)?;
        let identity = Identity { user: known.user, role: known.role };
        (now < known.ends.into()).then_some(identity)
    }

    pub(super) fn remember(&self, place: &Place, identity: Identity, ends: i64) {
        // In a hundred years none is remembered.
        let Ok(ends) = u32::try_from(ends) else { return };
        let Identity { user, role } = identity;
        let mut part = self.part(place);
        part.resize(SETS, [None; PLACES]);
        let set = &mut part[place.set];
        set.rotate_right(1);
        set[0] = Some(Verified { digest: place.digest, user, role, ends });
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
    fn of_the_tokens_of_a_set_none_speaks_for_another_and_the_oldest_goes() {
        let known = Known::new();
        let identity = |user| Identity { user: UserId(user), role: Role::Buyer };
        let place = |user: u8| Place { digest: [user; 16], part: 3, set: 5 };
        for user in 0..=16_u8 {
            assert_eq!(known.find(&place(user), 1), None);
            known.remember(&place(user), identity(user.into()), 100);
            assert_eq!(known.find(&place(user), 1), Some(identity(user.into())));
        }
        assert_eq!(known.find(&place(0), 1), None, "17 have 16 places");
        for user in 1..=16_u8 {
            assert_eq!(known.find(&place(user), 1), Some(identity(user.into())));
        }
    }

    #[test]
    fn many_tokens_take_the_places_of_others_and_never_their_names() {
        let known = Known::new();
        let place = |user: u64| Place::of(&format!("token-{user}")).unwrap();
        let identity = |user| Identity { user: UserId(user), role: Role::Buyer };
        let places = PARTS * SETS * PLACES;
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
        let kept = (0..3 * places as u64).filter(found).count();
        assert!((places * 99 / 100..=places).contains(&kept), "{kept} are kept");
    }

    #[test]
    fn a_place_is_as_large_as_it_says() {
        assert_eq!(size_of::<Option<Verified>>(), 32);
    }
}
