//! From the name of a lock to the keys of its contenders.
//!
//! They are those of etcd's package `concurrency` and of `etcdctl lock`:
//! `<name>/<lease id in hex>`. So a program in Go shares the lock by its name. A longer key,
//! `<name>/<more>/<lease id>`, is a contender for another lock, whose name is longer. Go's package
//! takes it for one of this lock.

use uuid::Uuid;

use crate::LockName;

/// What all keys of contenders for the lock begin with.
pub(crate) fn prefix(name: &LockName) -> String {
    format!("{name}/")
}

/// The id of the lease of that acquisition: positive, as etcd's own are.
pub(crate) fn lease_id(id: Uuid) -> i64 {
    let (_, low) = id.as_u64_pair();
    (low & i64::MAX.cast_unsigned()).cast_signed()
}

/// The key of the contender with that lease.
pub(crate) fn contender_key(name: &LockName, lease: i64) -> String {
    format!("{name}/{lease:x}")
}

/// The first key after those that begin so. The last byte of a prefix is never 255, which no UTF-8
/// has.
pub(crate) fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// The part after the prefix, if the key is right below it.
pub(crate) fn child<'a>(prefix: &str, key: &'a [u8]) -> Option<&'a [u8]> {
    key.strip_prefix(prefix.as_bytes()).filter(|child| !child.contains(&b'/'))
}

/// Whether the last part of a key is the id of a lease.
pub(crate) fn is_lease_id(child: &[u8]) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    matches!(child.len(), 1..=16) && child.iter().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contender_is_a_lease_right_below_the_name_of_its_lock() {
        let name = LockName::new("lock:order:17").unwrap();
        let lease = lease_id(Uuid::from_u128(u128::MAX));
        assert_eq!(lease, i64::MAX);
        assert_eq!(contender_key(&name, 0x2a), "lock:order:17/2a");
        let (prefix, key) = (prefix(&name), contender_key(&name, lease));
        assert_eq!(child(&prefix, key.as_bytes()), Some(&b"7fffffffffffffff"[..]));
        assert!(is_lease_id(b"7fffffffffffffff") && is_lease_id(b"2a"));
        assert_eq!(child(&prefix, b"lock:order:17/a/2a"), None, "of a lock with a longer name");
        assert_eq!(child(&prefix, b"lock:order:170/2a"), None);
        for other in [&b""[..], b"leader", b"2A", b"12345678123456781"] {
            assert!(!is_lease_id(other));
        }
        assert_eq!(range_end("a/"), b"a0");
    }
}
