//! Users of load tests. Each call takes a series of reserved phone numbers.

use crate::domain::{Phone, Role, UserId};
use crate::store::{StoreError, Users};

/// The series.
const SERIES: u32 = 100_000;
/// The numbers of a series, more than a call may ask for.
const SERIES_LENGTH: u64 = 10_000_000;
/// How many series are tried: with 50,000 of them in use, one call in a million finds none.
const MAX_DRAWS: u32 = 20;

/// Creates `count` users of that role, in a series that is not in use. `draw` returns random
/// numbers.
///
/// # Errors
///
/// [`StoreError::Duplicate`] if 20 series that were drawn are in use. Nothing is left of such a
/// try, since its first statement fails.
pub async fn create(
    users: &Users,
    count: u32,
    role: Role,
    mut draw: impl FnMut() -> u32,
) -> Result<Vec<UserId>, StoreError> {
    for _ in 1..MAX_DRAWS {
        match users.create(&series(draw(), count), role).await {
            Err(StoreError::Duplicate(_)) => {}
            created => return created,
        }
    }
    users.create(&series(draw(), count), role).await
}

fn series(drawn: u32, count: u32) -> Vec<Phone> {
    let first = u64::from(drawn % SERIES) * SERIES_LENGTH;
    (0..u64::from(count)).map(|number| Phone::reserved(first + number)).collect()
}
