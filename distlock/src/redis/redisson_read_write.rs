//! Redisson's `RReadWriteLock`, for the inspector: it is read, and never taken or freed.
//!
//! It is a hash with a field `mode`, `read` or `write`, and a field for each owner with its hold
//! count: `<uuid>:<thread>` for a reader, `<uuid>:<thread>:write` for the writer. In the mode
//! `write` a reader is the writer itself. The key lives as long as the longest of its leases. Those
//! of single readers are keys of their own, which are not read.

use uuid::Uuid;

use super::stored_key::number;
use crate::{LockHolder, RemainingLease};

const MODE: &[u8] = b"mode";
const WRITER_SUFFIX: &str = ":write";

/// The holders by the fields of the hash; `None` if it is no such lock.
pub(crate) fn holders(
    fields: &[(Vec<u8>, Vec<u8>)],
    lease: RemainingLease,
) -> Option<Vec<LockHolder>> {
    let is_mode = |(name, _): &&(Vec<u8>, Vec<u8>)| name == MODE;
    let may_write = match &fields.iter().find(is_mode)?.1[..] {
        b"read" => false,
        b"write" => true,
        _ => return None,
    };
    let owners = fields.iter().filter(|field| !is_mode(field));
    let holders = owners.map(|(owner, count)| holder(owner, count, may_write, lease));
    holders.collect::<Option<Vec<_>>>().filter(|holders| !holders.is_empty())
}

fn holder(
    owner: &[u8],
    count: &[u8],
    may_write: bool,
    lease: RemainingLease,
) -> Option<LockHolder> {
    let owner = std::str::from_utf8(owner).ok()?;
    let writer = owner.strip_suffix(WRITER_SUFFIX).filter(|_| may_write);
    let (client, thread) = writer.unwrap_or(owner).split_once(':')?;
    let is_owner = Uuid::try_parse(client).is_ok() && thread.parse::<i64>().is_ok();
    let holds = number(count).filter(|_| is_owner)?;
    let holder = LockHolder::of_owner(owner.to_owned(), lease);
    Some(LockHolder { holds: Some(holds), shares: writer.is_none(), ..holder })
}

#[cfg(test)]
mod tests {
    use super::*;

    const READER: &str = "0d0bc4d7-3b2c-4b73-9d4c-4f6f0a3c8f11:42";
    const OTHER: &str = "9b2f7c0e-52a1-4c55-8f0e-3f4b5a6c7d88:-7";
    const WRITER: &str = "0d0bc4d7-3b2c-4b73-9d4c-4f6f0a3c8f11:42:write";

    /// The owner of each holder, its hold count, and whether it shares the lock.
    fn shown(fields: &[(&str, &str)]) -> Option<Vec<(String, Option<u64>, bool)>> {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let fields: Vec<_> = fields.iter().map(|(name, it)| (bytes(name), bytes(it))).collect();
        let holders = holders(&fields, RemainingLease::NoExpiry)?;
        Some(holders.into_iter().map(|one| (one.id, one.holds, one.shares)).collect())
    }

    #[test]
    fn readers_share_and_the_writer_of_redisson_does_not() {
        let readers = shown(&[("mode", "read"), (READER, "2"), (OTHER, "1")]);
        let expected = vec![(READER.to_owned(), Some(2), true), (OTHER.to_owned(), Some(1), true)];
        assert_eq!(readers, Some(expected));
        // It reads as well, before it goes on as a reader.
        let writer = shown(&[(WRITER, "1"), ("mode", "write"), (READER, "3")]);
        let expected =
            vec![(WRITER.to_owned(), Some(1), false), (READER.to_owned(), Some(3), true)];
        assert_eq!(writer, Some(expected));
    }

    #[test]
    fn a_hash_with_a_mode_that_is_no_lock_of_redisson_has_no_holders() {
        for fields in [
            &[("mode", "read")][..],
            &[(READER, "1"), (OTHER, "1")],
            &[("mode", "fast"), (READER, "1")],
            &[("mode", "read"), ("another:1", "1")],
            &[("mode", "read"), (READER, "1"), ("retries", "3")],
            &[("mode", "read"), (READER, "many")],
            &[("mode", "read"), (WRITER, "1")],
        ] {
            assert_eq!(shown(fields), None, "{fields:?}");
        }
    }
}
