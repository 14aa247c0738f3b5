//! Which tokens are refused before they expire.
//!
//! A request costs one atomic load while nothing is revoked, otherwise a look-up in a map that is
//! replaced as a whole. It takes no lock, allocates nothing and asks no server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};

use arc_swap::ArcSwap;

use super::BadToken;
use crate::domain::UserId;

/// Nothing is revoked.
const EMPTY: u8 = 0;
/// The map has entries.
const FILLED: u8 = 1;
/// The map is too old to be relied on.
const STALE: u8 = 2;

/// Up to which moment tokens are refused, in ms since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationMap {
    /// Tokens of all users.
    pub all: i64,
    /// Tokens of one user.
    pub of_user: HashMap<UserId, i64>,
}

impl Default for RevocationMap {
    fn default() -> Self {
        Self { all: i64::MIN, of_user: HashMap::new() }
    }
}

impl RevocationMap {
    /// Adds a revocation; of two the later one counts.
    pub fn add(&mut self, user: Option<UserId>, not_before_ms: i64) {
        let entry = match user {
            Some(user) => self.of_user.entry(user).or_insert(i64::MIN),
            None => &mut self.all,
        };
        *entry = not_before_ms.max(*entry);
    }

    fn is_empty(&self) -> bool {
        self.all == i64::MIN && self.of_user.is_empty()
    }
}

/// The revocations that a replica knows.
#[derive(Default)]
pub struct Revocations {
    state: AtomicU8,
    map: ArcSwap<RevocationMap>,
}

impl Revocations {
    /// Refuses a token of that user that was issued at that moment and is revoked. While the map is
    /// stale no token is accepted.
    pub(super) fn check(&self, user: UserId, issued_ms: i64) -> Result<(), BadToken> {
        match self.state.load(Ordering::Acquire) {
            EMPTY => Ok(()),
            FILLED => {
                let map = self.map.load();
                let of_user = map.of_user.get(&user).copied().unwrap_or(i64::MIN);
                if issued_ms <= of_user.max(map.all) { Err(BadToken::Revoked) } else { Ok(()) }
            }
            _ => Err(BadToken::Unchecked),
        }
    }

    /// What is known now.
    pub fn map(&self) -> RevocationMap {
        RevocationMap::clone(&self.map.load())
    }

    /// Replaces what is known.
    pub fn replace(&self, map: RevocationMap) {
        let state = if map.is_empty() { EMPTY } else { FILLED };
        self.map.store(map.into());
        self.state.store(state, Ordering::Release);
    }

    /// The map was not confirmed for too long: tokens are unchecked until [`Self::replace`].
    pub fn set_stale(&self) {
        self.state.store(STALE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_refused_if_it_was_issued_up_to_its_users_revocation_or_that_of_all() {
        let revocations = Revocations::default();
        let (seven, eight) = (UserId(7), UserId(8));
        assert_eq!(revocations.check(seven, 1000), Ok(()));
        let mut map = RevocationMap::default();
        map.add(Some(seven), 1000);
        map.add(Some(seven), 900);
        revocations.replace(map.clone());
        assert_eq!(revocations.check(seven, 1000), Err(BadToken::Revoked));
        assert_eq!(revocations.check(seven, 1001), Ok(()), "issued a millisecond later");
        assert_eq!(revocations.check(eight, 1000), Ok(()));
        map.add(None, 1500);
        revocations.replace(map);
        assert_eq!(revocations.check(eight, 1500), Err(BadToken::Revoked));
        assert_eq!(revocations.check(eight, 1501), Ok(()));
        revocations.set_stale();
        assert_eq!(revocations.check(eight, 1501), Err(BadToken::Unchecked));
        revocations.replace(RevocationMap::default());
        assert_eq!(revocations.check(seven, 1000), Ok(()));
    }
}
