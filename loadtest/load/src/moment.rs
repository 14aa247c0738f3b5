//! Moments as the API and histories write them.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A moment in whole seconds of UTC, as RFC 3339.
pub fn rfc3339(moment: OffsetDateTime) -> String {
    let moment = moment.to_utc().truncate_to_second();
    moment.format(&Rfc3339).expect("a year of four digits")
}
