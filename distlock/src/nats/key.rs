//! From the name of a lock to the key of its entry and back, and what its holder writes there.
//!
//! Keys of a bucket have letters, digits, `-`, `_`, `/`, `=` and `.`. Of the name of a lock all
//! other bytes, `=` and `.` are written as `=XX`, two capital hexadecimal digits. So each name has
//! one key, and any client of the bucket can read it.

use std::fmt::Write;

use crate::Request;

/// The key of the lock of that name, or the beginning of the keys of names that begin so.
pub(crate) fn key_of(name: &str) -> String {
    let mut key = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/') {
            key.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _written = write!(key, "={byte:02X}");
        }
    }
    key
}

/// The name whose key that is; `None` if it is no name's.
pub(crate) fn name_of(key: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), key);
    while let Some(at) = rest.find('=') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        bytes.push(u8::from_str_radix(rest.get(at + 1..at + 3)?, 16).ok()?);
        rest = &rest[at + 3..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok().filter(|name| key_of(name) == key)
}

/// What the entry of a hold says: the acquisition, the token once the entry is renewed, and on the
/// next line the owner. The token is the revision of the create, which knows no revision yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EntryText<'a> {
    /// What tells this hold from another one of the same owner.
    pub(crate) id: &'a str,
    pub(crate) owner: &'a str,
    /// `None` if the entry was never renewed.
    pub(crate) token: Option<u64>,
}

impl<'a> EntryText<'a> {
    /// Reads an entry. One of another program is all owner, and its own id.
    pub(crate) fn read(text: &'a str) -> Self {
        let Some((head, owner)) = text.split_once('\n') else {
            return Self { id: text, owner: text, token: None };
        };
        match head.split_once(' ') {
            Some((id, token)) => Self { id, owner, token: token.parse().ok() },
            None => Self { id: head, owner, token: None },
        }
    }

    /// Whether it is the entry of that hold.
    pub(crate) fn is_of(&self, hold: &Request) -> bool {
        self.owner == hold.owner.as_str() && self.id == hold.id.simple().to_string()
    }
}

/// The entry of that hold.
pub(crate) fn entry_text(hold: &Request, token: Option<u64>) -> String {
    let token = token.map_or(String::new(), |token| format!(" {token}"));
    format!("{}{token}\n{}", hold.id.simple(), hold.owner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::{LockName, Owner};

    #[test]
    fn a_name_has_one_key_of_the_signs_that_a_bucket_takes() {
        assert_eq!(key_of("lock:order:17"), "lock=3Aorder=3A17");
        assert_eq!(key_of("a.b=c {ü}*>"), "a=2Eb=3Dc=20=7B=C3=BC=7D=2A=3E");
        for name in ["lock:order:17", "a.b=c {ü}*>", "A-z_0/9", "=", "."] {
            assert_eq!(name_of(&key_of(name)).as_deref(), Some(name));
        }
    }

    #[test]
    fn an_entry_names_its_owner_its_acquisition_and_its_token() {
        let hold = Request {
            name: LockName::new("a").unwrap(),
            owner: Owner::from_text("me\nand you"),
            may_hold: false,
            id: Uuid::from_u128(7),
            lease: Duration::from_secs(1),
        };
        for token in [None, Some(41)] {
            let text = entry_text(&hold, token);
            let read = EntryText::read(&text);
            assert!(read.is_of(&hold) && read.token == token, "{read:?}");
            let other = Request { id: Uuid::from_u128(8), ..hold.clone() };
            assert!(!read.is_of(&other), "the same owner may take the lock again");
        }
        let foreign = EntryText::read("another program's");
        assert_eq!((foreign.id, foreign.owner), ("another program's", "another program's"));
    }

    #[test]
    fn a_key_that_no_name_has_is_none() {
        for key in ["a.b", "=3", "=", "=41", "=3a", "=C3", "=ü1", "=+1"] {
            assert_eq!(name_of(key), None, "{key}");
        }
    }
}
