//! Phone numbers, by which people log in.

use std::fmt;

/// Text that is no phone number.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 6 to 15 digits, with a leading + at most")]
pub struct BadPhone;

/// A checked phone number: an optional `+` and 6 to 15 digits.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Phone(String);

impl Phone {
    /// Checks a number.
    pub fn new(text: &str) -> Result<Self, BadPhone> {
        let digits = text.strip_prefix('+').unwrap_or(text);
        let plain = (6..=15).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        if plain { Ok(Self(text.to_owned())) } else { Err(BadPhone) }
    }

    /// The number as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number with its middle hidden, for answers and logs.
    pub fn masked(&self) -> String {
        let (head, tail) = (self.0.len() / 4, self.0.len() - self.0.len() / 3);
        format!("{}****{}", &self.0[..head], &self.0[tail..])
    }
}

impl fmt::Debug for Phone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phone_number_is_digits_and_hides_its_middle() {
        for bad in
            ["", "12345", "1234567890123456", "12 34567", "++123456", "１２３４５６７", "a123456"]
        {
            assert_eq!(Phone::new(bad), Err(BadPhone), "{bad:?}");
        }
        let phone = Phone::new("13812345678").unwrap();
        assert_eq!(phone.masked(), "13****678");
        assert_eq!(format!("{:?}", Phone::new("+491234567").unwrap()), "+4****567");
    }
}
