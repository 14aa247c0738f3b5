//! Names of locks.

use std::fmt;
use std::sync::Arc;

use crate::LockError;

/// A checked lock name: 1 to 512 bytes, without control characters. It has at most one pair of
/// braces, not empty, by which a Redis Cluster chooses the slot. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Checks a name. Fails with [`LockError::BadRequest`] before any server is asked.
    pub fn new(name: impl Into<Arc<str>>) -> Result<Self, LockError> {
        let name = name.into();
        let refuse = |limit: String| Err(LockError::BadRequest { field: "lock name", limit });
        if name.is_empty() || name.len() > Self::MAX_BYTES {
            return refuse(format!("must have 1 to {} bytes, has {}", Self::MAX_BYTES, name.len()));
        }
        if name.chars().any(char::is_control) {
            return refuse("must not contain control characters".into());
        }
        if !braces_are_a_tag(&name) {
            return refuse("must have braces only as one {tag} that is not empty".into());
        }
        Ok(Self(name))
    }

    /// Whether it has a `{tag}` of its own.
    #[must_use]
    pub fn has_tag(&self) -> bool {
        self.0.contains('{')
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn braces_are_a_tag(name: &str) -> bool {
    let braces: String = name.chars().filter(|c| "{}".contains(*c)).collect();
    braces.is_empty() || (braces == "{}" && !name.contains("{}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_bounded_and_printable() {
        for bad in
            ["", "a\nb", "a\0", &"x".repeat(513), "a{}", "{a", "a}", "{a}{b}", "}a{", "{{a}}"]
        {
            let error = LockName::new(bad).unwrap_err().to_string();
            assert!(error.starts_with("lock name: must"), "{error}");
        }
        for good in ["a", "lock:order:17", &"x".repeat(512), "lock:{17}:ü"] {
            assert_eq!(LockName::new(good).unwrap().as_str(), good);
        }
    }
}
