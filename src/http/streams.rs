//! The places of event streams: so many in all, and so many of one user, who would otherwise keep
//! everybody else from theirs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::ApiError;
use crate::domain::UserId;

/// The most streams of a replica at a time.
const MOST: usize = 1024;
/// The most of one user: a few tabs, and one that is just being left.
const MOST_OF_A_USER: usize = 4;
/// When to try again if there is none: the longest that an event is waited for by asking instead.
const RETRY_AFTER_S: u64 = 5;

/// The places of a replica. Cheap to clone.
#[derive(Clone, Default)]
pub struct Streams(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    all: usize,
    of_users: HashMap<UserId, usize>,
}

/// A place, until it is dropped.
pub(super) struct Place {
    streams: Streams,
    user: UserId,
}

impl Streams {
    /// A place for a stream of that user.
    pub(super) fn enter(&self, user: UserId) -> Result<Place, ApiError> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.of_users.get(&user).is_some_and(|count| *count >= MOST_OF_A_USER) {
            return Err(ApiError::TooManyRequests { retry_after_s: RETRY_AFTER_S });
        }
        if taken.all >= MOST {
            return Err(ApiError::Overloaded);
        }
        taken.all += 1;
        *taken.of_users.entry(user).or_default() += 1;
        drop(taken);
        Ok(Place { streams: self.clone(), user })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(count) = taken.of_users.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                taken.of_users.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_few_places_and_all_together_as_many_as_there_are() {
        let streams = Streams::default();
        let mut taken = Vec::new();
        for number in 0..MOST {
            let user = UserId((number / MOST_OF_A_USER) as u64);
            taken.push(streams.enter(user).unwrap());
            let again = streams.enter(user).map(drop);
            let has_all = (number + 1).is_multiple_of(MOST_OF_A_USER);
            assert_eq!(matches!(again, Err(ApiError::TooManyRequests { .. })), has_all);
        }
        assert!(matches!(streams.enter(UserId(u64::MAX)), Err(ApiError::Overloaded)));
        taken.remove(0);
        assert!(matches!(streams.enter(UserId(1)), Err(ApiError::TooManyRequests { .. })));
        assert!(streams.enter(UserId(u64::MAX)).is_ok(), "it was not given back");
        taken.clear();
        assert!(streams.0.lock().unwrap().of_users.is_empty(), "users are remembered for ever");
    }
}
