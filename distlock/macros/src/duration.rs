//! Durations as text.

use syn::{Error, LitStr, Result};

/// Milliseconds of each unit.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Reads a whole number with its unit, as milliseconds. `LockOptions` checks the range at run time.
pub(crate) fn parse_ms(literal: &LitStr) -> Result<u64> {
    let text = literal.value();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = UNITS.iter().find(|(unit, _)| *unit == &text[digits.len()..]);
    unit.zip(digits.parse::<u64>().ok())
        .and_then(|((_, unit), count)| count.checked_mul(*unit))
        .ok_or_else(|| {
            let text =
                format!("`{text}` is no duration: a whole number and ms, s, m or h, as in `200ms`");
            Error::new(literal.span(), text)
        })
}
