//! Durations as text.

use std::ops::RangeInclusive;

use syn::{Error, LitStr, Result};

/// Milliseconds of each unit.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// The ranges of `LockOptions`, in milliseconds; a test compares them.
pub(crate) const WAIT_MS: RangeInclusive<u64> = 0..=86_400_000;
pub(crate) const LEASE_MS: RangeInclusive<u64> = 10..=86_400_000;

/// Reads a whole number with its unit, as milliseconds of that range. That a lease is longer than
/// two round trips, `LockOptions` checks at run time.
pub(crate) fn parse_ms(literal: &LitStr, range: &RangeInclusive<u64>) -> Result<u64> {
    let text = literal.value();
    let (digits, rest) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let unit = UNITS.iter().find(|(unit, _)| *unit == rest);
    let ms = unit
        .zip(digits.parse::<u64>().ok())
        .and_then(|((_, unit), count)| count.checked_mul(*unit))
        .ok_or_else(|| {
            let text =
                format!("`{text}` is no duration: a whole number and ms, s, m or h, as in `200ms`");
            Error::new(literal.span(), text)
        })?;
    if range.contains(&ms) {
        return Ok(ms);
    }
    let least = if *range.start() == 0 { "at most" } else { "10ms to" };
    Err(Error::new(literal.span(), format!("`{text}` is out of range: must be {least} 24h")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_are_those_of_lock_options() {
        let options = include_str!("../../src/options.rs");
        let (least, most) = (LEASE_MS.start(), LEASE_MS.end() / 3_600_000);
        let least = format!("MIN_LEASE: Duration = Duration::from_millis({least});");
        let most = format!("MAX: Duration = Duration::from_hours({most});");
        assert!(options.contains(&least), "{least}");
        assert!(options.contains(&most), "{most}");
        assert_eq!(WAIT_MS.end(), LEASE_MS.end());
    }
}
