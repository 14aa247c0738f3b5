//! Phone numbers, by which people log in: one spelling each, that of E.164.

use std::fmt;
use std::str::FromStr;

use phonenumber::Mode;
use phonenumber::country::Id;
use phonenumber::metadata::DATABASE;

/// The most digits of E.164, with the country code.
const MAX_DIGITS: usize = 15;
/// Begins numbers that no country has: no login takes them (`seckill token`).
const RESERVED: &str = "+999";

/// The country whose numbers may be given as they are dialled there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Country(Id);

/// Text that names no country.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a country of ISO 3166 in two capital letters, as CN")]
pub struct BadCountry;

impl FromStr for Country {
    type Err = BadCountry;

    fn from_str(text: &str) -> Result<Self, BadCountry> {
        // Looked up in no rules: loading them takes 0.1 s, at the start of every command.
        text.parse().map(Self).map_err(|_| BadCountry)
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_ref())
    }
}

impl fmt::Debug for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_ref())
    }
}

/// Text that is no phone number.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPhone {
    /// It has other characters, too few digits or too many.
    #[error(
        "must be {} to {} digits, with a leading + at most",
        Phone::MIN_DIGITS,
        Phone::MAX_DIALLED_DIGITS
    )]
    Format,
    /// No such number can be assigned.
    #[error(
        "is not a valid phone number in {0} or abroad; abroad is + and the country's code first"
    )]
    Invalid(Country),
}

/// A phone number in E.164, as `+8613800000001`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Phone(String);

impl Phone {
    /// The fewest digits of a number as it is dialled.
    pub const MIN_DIGITS: usize = 5;
    /// The most digits of a number as it is dialled: 15 of E.164 and what dials abroad.
    pub const MAX_DIALLED_DIGITS: usize = 20;

    /// The number that text means in that country: all spellings of one number are equal.
    pub fn parse(text: &str, country: Country) -> Result<Self, BadPhone> {
        let digits = text.strip_prefix('+').unwrap_or(text);
        let length = Self::MIN_DIGITS..=Self::MAX_DIALLED_DIGITS;
        if !length.contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BadPhone::Format);
        }
        let invalid = BadPhone::Invalid(country);
        let Some(number) = normalize(&international(text, country), country) else {
            return Err(invalid);
        };
        // What the library spells in two ways is no name for a user.
        if normalize(&number, country).as_ref() == Some(&number) {
            Ok(Self(number))
        } else {
            Err(invalid)
        }
    }

    /// A number that no country has, below 10^12, for a user who never logs in.
    pub fn reserved(number: u64) -> Self {
        Self(format!("{RESERVED}{number:012}"))
    }

    /// The phone of a user as the database has it, which may be older than the rules.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// Whether no country has that number.
    pub fn is_reserved(text: &str) -> bool {
        text.starts_with(RESERVED)
    }

    /// The number in E.164.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number with its middle hidden, for answers and logs.
    pub fn masked(&self) -> String {
        let (head, tail) = (self.0.len() / 4, self.0.len() - self.0.len() / 3);
        format!("{}****{}", &self.0[..head], &self.0[tail..])
    }
}

/// The text with a `+` for what dials abroad in that country. (The library strips that too, but
/// then reads what follows as a number of that country.)
fn international(text: &str, country: Country) -> String {
    let prefix = DATABASE.by_id(country.0.as_ref()).and_then(|meta| meta.international_prefix());
    let found = prefix.and_then(|prefix| prefix.find(text)).filter(|found| found.start() == 0);
    match found.map(|found| &text[found.end()..]) {
        Some(rest) if !rest.is_empty() && !rest.starts_with('0') => format!("+{rest}"),
        _ => text.to_owned(),
    }
}

/// A valid number in E.164. With a `+` it is read by its own country's rules.
fn normalize(text: &str, country: Country) -> Option<String> {
    let is_international = text.starts_with('+');
    let number = phonenumber::parse((!is_international).then_some(country.0), text).ok()?;
    let e164 = number.is_valid().then(|| number.format().mode(Mode::E164).to_string())?;
    (e164.len() <= MAX_DIGITS + 1).then_some(e164)
}

impl fmt::Debug for Phone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cn() -> Country {
        "CN".parse().unwrap()
    }

    fn parse(text: &str) -> Result<String, BadPhone> {
        Phone::parse(text, cn()).map(|phone| phone.as_str().to_owned())
    }

    #[test]
    fn every_spelling_of_a_number_is_one_phone() {
        for text in [
            "13900000016",
            "013900000016",
            "8613900000016",
            "+8613900000016",
            "008613900000016",
            "+86013900000016",
        ] {
            assert_eq!(parse(text).as_deref(), Ok("+8613900000016"), "{text}");
        }
        // The zero belongs to a number of Italy, and not to one of Germany.
        for (text, number) in [
            ("+390612345678", "+390612345678"),
            ("00390612345678", "+390612345678"),
            ("+49015112345678", "+4915112345678"),
            ("004915112345678", "+4915112345678"),
            ("+12015550123", "+12015550123"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(number), "{text}");
        }
        let us = "US".parse().unwrap();
        for text in ["2015550123", "12015550123", "+12015550123", "01112015550123"] {
            assert_eq!(Phone::parse(text, us).unwrap().as_str(), "+12015550123", "{text}");
        }
    }

    #[test]
    fn text_that_is_no_valid_number_is_refused_with_the_reason() {
        for bad in [
            "",
            "1234",
            "123456789012345678901",
            "12 34567",
            "++123456",
            "１２３４５６７",
            "a123456",
        ] {
            assert_eq!(parse(bad), Err(BadPhone::Format), "{bad:?}");
        }
        for bad in [
            "+13900000016",
            "0013900000016",
            "12345",
            "+00000000000",
            "00000000",
            "+999000000000001",
            "1380000000",
            "138000000010",
            "12015550123",
            "99999999999999999999",
            "+99999999999999999999",
        ] {
            assert_eq!(parse(bad), Err(BadPhone::Invalid(cn())), "{bad:?}");
        }
        for bad in ["", "cn", "ZZ", "CHN", "86"] {
            assert_eq!(bad.parse::<Country>(), Err(BadCountry), "{bad:?}");
        }
    }

    #[test]
    fn every_country_has_rules() {
        let letters = || (b'A'..=b'Z').map(char::from);
        let pairs = letters().flat_map(|a| letters().map(move |b| format!("{a}{b}")));
        let countries = pairs.filter_map(|text| text.parse::<Country>().ok());
        let mut count = 0;
        for country in countries {
            assert!(DATABASE.by_id(country.0.as_ref()).is_some(), "{country}");
            count += 1;
        }
        assert!(count > 200, "{count} countries");
    }

    #[test]
    fn a_phone_hides_its_middle() {
        assert_eq!(Phone::parse("13812345678", cn()).unwrap().masked(), "+86****5678");
        assert_eq!(format!("{:?}", Phone::reserved(7)), "+999****00007");
        assert_eq!(Phone::from_stored("123456".into()).masked(), "1****56");
        assert_eq!(Phone::from_stored(String::new()).masked(), "****");
    }

    proptest! {
        #[test]
        fn a_phone_is_parsed_to_itself_and_no_text_panics(
            text in "\\+?(00|0|86|1|49|39|44|54|52|7|55)?[0-9]{3,17}",
            country in "CN|US|IT|DE|AR|BR|RU",
        ) {
            let country: Country = country.parse().unwrap();
            if let Ok(phone) = Phone::parse(&text, country) {
                prop_assert!(phone.as_str().len() <= 16 && phone.as_str().starts_with('+'));
                prop_assert_eq!(Phone::parse(phone.as_str(), cn()), Ok(phone.clone()));
            }
        }
    }
}
