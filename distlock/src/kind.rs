//! The closed list of lock kinds.

use std::fmt;
use std::str::FromStr;

/// The name of a mechanism. Command lines, tables and tests iterate [`LockKind::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// No lock at all.
    None,
    /// A fair mutex per name inside this process, as `synchronized` is in a JVM.
    Local,
    /// Redis `SET key owner NX PX lease`, released by one script that compares the owner.
    LuaRelease,
}

impl LockKind {
    /// Every kind, in the order in which the literature introduces them.
    pub const ALL: [Self; 3] = [Self::None, Self::Local, Self::LuaRelease];

    /// The name used on command lines and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Local => "local",
            Self::LuaRelease => "lua-release",
        }
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no lock kind.
#[derive(Debug, thiserror::Error)]
#[error("no such lock kind; one of: {}", LockKind::ALL.map(LockKind::as_str).join(", "))]
pub struct UnknownLockKind;

impl FromStr for LockKind {
    type Err = UnknownLockKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownLockKind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_again_by_its_name() {
        for kind in LockKind::ALL {
            assert_eq!(kind.as_str().parse::<LockKind>().unwrap(), kind);
        }
        let refusal = "redlock".parse::<LockKind>().unwrap_err().to_string();
        assert!(refusal.contains("lua-release"), "{refusal}");
    }
}
