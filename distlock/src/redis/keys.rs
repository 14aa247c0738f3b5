//! Names of keys and channels, and numbers, as Redisson writes them.

use std::time::Duration;

use crate::LockName;

/// A key or channel that belongs to the lock of that name: `prefix:{name}`. A name with a `{tag}`
/// of its own stays as it is, so that both are always in the same slot of a Redis Cluster.
pub(crate) fn prefixed(prefix: &str, name: &LockName) -> String {
    if name.has_tag() { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

/// As [`prefixed`], in formats that are ours alone: there `17` and `{17}` are two names.
pub(crate) fn own_key(prefix: &str, name: &LockName) -> String {
    if name.has_tag() { format!("{prefix}::{name}") } else { format!("{prefix}:{{{name}}}") }
}

/// A length of time as scripts take it; none is too long for them.
pub(crate) fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gets_braces_unless_it_has_a_tag_of_its_own() {
        let plain = LockName::new("order:17").unwrap();
        assert_eq!(prefixed("channel", &plain), "channel:{order:17}");
        let tagged = LockName::new("order:{17}").unwrap();
        assert_eq!(prefixed("channel", &tagged), "channel:order:{17}");
        let (bare, braced) = (LockName::new("17").unwrap(), LockName::new("{17}").unwrap());
        assert_eq!(prefixed("channel", &bare), prefixed("channel", &braced), "as Redisson does");
        assert_ne!(own_key("fair", &bare), own_key("fair", &braced));
    }
}
