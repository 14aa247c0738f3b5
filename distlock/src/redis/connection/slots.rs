//! Which slot of a Redis Cluster a key is in, and which node has the slot.

use std::sync::Arc;

use redis::{Arg, Cmd, Value};

/// Slots of a cluster.
pub(super) const SLOT_COUNT: u16 = 16_384;

/// The slot of a key: that of its `{tag}` if it has one that is not empty.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let position = |bytes: &[u8], wanted| bytes.iter().position(|byte| *byte == wanted);
    let tag = position(key, b'{').and_then(|open| {
        let tag = &key[open + 1..];
        position(tag, b'}').filter(|close| *close > 0).map(|close| &tag[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOT_COUNT
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    let step = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ (u16::from(*byte) << 8), step))
}

/// The slot of a command: that of its first key. `None` if it has no key. Commands have their
/// first key in the first place, scripts behind the number of their keys.
pub(super) fn slot_of(command: &Cmd) -> Option<u16> {
    const COMMANDS_WITHOUT_KEY: [&[u8]; 6] =
        [b"PING", b"INFO", b"SCRIPT", b"CLIENT", b"CONFIG", b"CLUSTER"];
    let mut words = command.args_iter().map(|word| match word {
        Arg::Simple(word) => word,
        _ => b"",
    });
    let name = words.next()?;
    if COMMANDS_WITHOUT_KEY.contains(&name) {
        return None;
    }
    if [&b"EVAL"[..], b"EVALSHA"].contains(&name) && words.nth(1)? == b"0" {
        return None;
    }
    words.next().map(slot)
}

/// Slots that follow one another, and the address of the master that has them.
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) master: Arc<str>,
}

/// The answer to `CLUSTER SLOTS`, as given by the node with that host, which may leave its own host
/// out. `None` if it is none.
pub(super) fn ranges(answer: &Value, asked: &str) -> Option<Vec<SlotRange>> {
    let Value::Array(rows) = answer else { return None };
    rows.iter().map(|row| range(row, asked)).collect()
}

fn range(row: &Value, asked: &str) -> Option<SlotRange> {
    let Value::Array(row) = row else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = row.as_slice() else {
        return None;
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let host = match master.first()? {
        Value::BulkString(host) if !host.is_empty() => std::str::from_utf8(host).ok()?,
        _ => asked,
    };
    let Value::Int(port) = master.get(1)? else { return None };
    (last < SLOT_COUNT).then(|| SlotRange { first, last, master: format!("{host}:{port}").into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // As `CLUSTER KEYSLOT` says.
        for (key, number) in [("123456789", 12_739), ("foo", 12_182), ("a{foo}b{c}", 12_182)] {
            assert_eq!(slot(key.as_bytes()), number, "{key}");
        }
        assert_eq!(slot(b"x{foo}y"), slot(b"foo"));
        assert_ne!(slot(b"x{}foo"), slot(b"foo"));
    }

    #[test]
    fn a_command_is_where_its_first_key_is() {
        let mut eval = redis::cmd("EVALSHA");
        eval.arg("digest").arg(1).arg("foo").arg("bar");
        assert_eq!(slot_of(&eval), Some(12_182));
        assert_eq!(slot_of(redis::cmd("SET").arg("foo").arg("1")), Some(12_182));
        let mut eval = redis::cmd("EVAL");
        eval.arg("return 1").arg(0).arg("foo");
        assert_eq!(slot_of(&eval), None);
        assert_eq!(slot_of(&redis::cmd("PING")), None);
        assert_eq!(slot_of(redis::cmd("SCRIPT").arg("LOAD").arg("return 1")), None);
    }
}
