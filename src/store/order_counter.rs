//! The name of the key that numbers the orders of a day.

use std::borrow::Cow;
use std::str::FromStr;

use time::Date;

/// What stands for year, month and day in a name, as in Java.
const DATE_PARTS: [&str; 3] = ["yyyy", "MM", "dd"];
/// The most characters of a name.
const MAX_LENGTH: usize = 64;

/// A key of Redis for each day, as `icr:order:yyyyMMdd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderCounter(Cow<'static, str>);

impl OrderCounter {
    /// The counter of the native API.
    pub(super) const NATIVE: Self = Self(Cow::Borrowed("icr:order:yyyy-MM-dd"));
    /// The counter of hm-dianping, unless its service has another one.
    pub const DIANPING: Self = Self(Cow::Borrowed("icr:order:yyyyMMdd"));

    /// The key of that day.
    pub(super) fn key(&self, day: Date) -> String {
        let (year, month, day) = day.to_calendar_date();
        let [y, m, d] = DATE_PARTS;
        let key = self.0.replace(y, &format!("{year:04}"));
        key.replace(m, &format!("{:02}", u8::from(month))).replace(d, &format!("{day:02}"))
    }

    /// The pattern of all its keys.
    pub(super) fn pattern(&self) -> String {
        let first = DATE_PARTS.iter().filter_map(|part| self.0.find(part)).min();
        format!("{}*", &self.0[..first.unwrap_or(self.0.len())])
    }
}

impl FromStr for OrderCounter {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let is_named = (1..=MAX_LENGTH).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*');
        let has_date = DATE_PARTS.iter().all(|part| name.matches(part).count() == 1);
        if is_named && has_date && !DATE_PARTS.iter().any(|part| name.starts_with(part)) {
            return Ok(Self(name.to_owned().into()));
        }
        Err(format!(
            "must begin with a name and have yyyy, MM and dd once each, \
             as icr:order:yyyy:MM:dd, in at most {MAX_LENGTH} visible characters"
        ))
    }
}

#[cfg(test)]
mod tests {
    use time::macros::date;

    use super::*;

    #[test]
    fn a_counter_has_a_key_for_each_day() {
        let day = date!(2026 - 03 - 09);
        assert_eq!(OrderCounter::NATIVE.key(day), format!("icr:order:{day}"));
        assert_eq!(OrderCounter::DIANPING.key(day), "icr:order:20260309");
        let counter: OrderCounter = "incr:order:yyyy:MM:dd".parse().expect("a name");
        assert_eq!(counter.key(day), "incr:order:2026:03:09");
        assert_eq!(counter.pattern(), "incr:order:*");
    }

    #[test]
    fn a_name_without_a_whole_date_is_refused() {
        let long = format!("{}yyyyMMdd", "o".repeat(MAX_LENGTH));
        for name in
            ["", "icr:order", "icr:order:MMdd", "yyyyMMdd", "o:yyyyMMdd:dd", "o yyyyMMdd", &long]
        {
            assert!(name.parse::<OrderCounter>().is_err(), "{name}");
        }
    }
}
