//! From the name of a lock to its znode, and what the names of the children there say.
//!
//! A name that begins with `/` is the absolute path of the znode, so that a program with Curator
//! can share the lock: `/locks/x` is `new InterProcessMutex(client, "/locks/x")`. Any other name is
//! a child of `/distlock`. ASCII letters, digits and `-_.~:@+=,{}` stay; every other byte of its
//! UTF-8 is written `%XX`. So `lock:order:17` is `/distlock/lock:order:17`, and no two such names
//! share a znode.
//!
//! The contenders are children `_c_<uuid>-lock-<sequence>`. The sequence is the server's 32-bit
//! counter of the znode. After 2147483647 it continues at -2147483648, so two of them are compared
//! by their distance.

use uuid::Uuid;

use crate::{LockError, LockName};

/// The folder of names that are no absolute paths.
pub(crate) const BASE_PATH: &str = "/distlock";
/// What stands between a contender's own part and the sequence, in Curator's locks.
const LOCK_SUFFIX: &str = "lock-";
/// What stands there for a reader of Curator's `InterProcessReadWriteLock`, and for a writer.
const READ_SUFFIX: &str = "__READ__";
const WRITE_SUFFIX: &str = "__WRIT__";
/// Belongs to the server.
const RESERVED_PATH: &str = "/zookeeper";

/// The znode whose children contend for the lock.
pub(crate) fn container(name: &LockName) -> Result<String, LockError> {
    let name = name.as_str();
    if !name.starts_with('/') {
        return Ok(format!("{BASE_PATH}/{}", encoded(name)));
    }
    let refuse = |limit: &str| {
        Err(LockError::BadRequest { field: "lock name", limit: format!("as a znode {limit}") })
    };
    if name.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
        return refuse("must have no part that is empty, `.` or `..`");
    }
    if name == RESERVED_PATH || name.starts_with("/zookeeper/") {
        return refuse("must not be below /zookeeper");
    }
    if name.chars().any(|c| matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')) {
        return refuse("must have no characters of private use and no specials");
    }
    Ok(name.to_owned())
}

fn encoded(name: &str) -> String {
    if matches!(name, "." | "..") {
        return name.replace('.', "%2E");
    }
    let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~:@+=,{}".contains(&byte);
    let encode = |byte| match byte {
        kept if is_kept(kept) => char::from(kept).to_string(),
        other => format!("%{other:02X}"),
    };
    name.bytes().map(encode).collect()
}

/// The name that [`container`] has written so; `None` if it is not UTF-8.
pub(crate) fn decoded(child: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(child.len());
    let mut parts = child.split('%');
    bytes.extend(parts.next()?.bytes());
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend(part.get(2..)?.bytes());
    }
    String::from_utf8(bytes).ok()
}

/// How the names of a contender's node begin, before anything else is known of it.
pub(crate) fn protection(id: Uuid) -> String {
    format!("_c_{id}-")
}

/// The path of a contender's node up to the sequence, which the server appends.
pub(crate) fn contender(container: &str, id: Uuid) -> String {
    format!("{container}/{}{LOCK_SUFFIX}", protection(id))
}

/// Where a contender stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum QueuePlace {
    /// No node is before it.
    First,
    /// This child is right before it.
    Behind(String),
    /// It is not there.
    Absent,
}

/// Where the contender of that name stands among the children. Fails with
/// [`LockError::HeldByOtherKind`] if one of them is no contender for a lock.
pub(crate) fn queue_place(own: &str, children: &[String]) -> Result<QueuePlace, LockError> {
    let sequences = sequences(children, &[LOCK_SUFFIX]).ok_or(LockError::HeldByOtherKind)?;
    let Some(place) = sequences.iter().find(|(name, _)| *name == own).map(|(_, place)| *place)
    else {
        return Ok(QueuePlace::Absent);
    };
    // How far it is from each other one to the own place, whatever the counter has passed.
    let distance = |sequence: i32| place.wrapping_sub(sequence);
    let before = sequences.into_iter().filter(|(_, sequence)| distance(*sequence) > 0);
    let nearest = before.min_by_key(|(_, sequence)| distance(*sequence));
    Ok(nearest.map_or(QueuePlace::First, |(name, _)| QueuePlace::Behind(name.to_owned())))
}

/// A contender, as the name of its node tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QueuedNode<'a> {
    pub(crate) name: &'a str,
    /// Whether it shares the lock with readers beside it, as in Curator's read-write lock.
    pub(crate) is_reader: bool,
}

/// The contenders in the order in which they get the lock. `None` if a child is none, or if some
/// are of the plain lock and others of the read-write lock.
pub(crate) fn in_order(children: &[String]) -> Option<Vec<QueuedNode<'_>>> {
    let mut sequences = sequences(children, &[LOCK_SUFFIX])
        .or_else(|| sequences(children, &[READ_SUFFIX, WRITE_SUFFIX]))?;
    let any = sequences.first().map_or(0, |(_, sequence)| *sequence);
    // The distance has a sign, whatever the counter has passed.
    sequences.sort_by_key(|(_, sequence)| sequence.wrapping_sub(any));
    let node = |name| QueuedNode { name, is_reader: sequence(name, READ_SUFFIX).is_some() };
    Some(sequences.into_iter().map(|(name, _)| node(name)).collect())
}

/// `None` if a child has none of these suffixes before its sequence.
fn sequences<'a>(children: &'a [String], suffixes: &[&str]) -> Option<Vec<(&'a str, i32)>> {
    let known = |name: &'a str| {
        let sequence = suffixes.iter().find_map(|suffix| sequence(name, suffix))?;
        Some((name, sequence))
    };
    children.iter().map(|name| known(name)).collect()
}

fn sequence(name: &str, suffix: &str) -> Option<i32> {
    name.rsplit_once(suffix)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> Result<String, LockError> {
        container(&LockName::new(name).unwrap())
    }

    #[test]
    fn each_name_has_a_znode_of_its_own_and_an_absolute_path_is_itself() {
        for (name, znode) in [
            ("lock:order:17", "/distlock/lock:order:17"),
            ("lock:{17}", "/distlock/lock:{17}"),
            ("a/b", "/distlock/a%2Fb"),
            ("a%2Fb", "/distlock/a%252Fb"),
            ("a b", "/distlock/a%20b"),
            ("ü", "/distlock/%C3%BC"),
            (".", "/distlock/%2E"),
            ("..", "/distlock/%2E%2E"),
            ("...", "/distlock/..."),
            ("/locks/x", "/locks/x"),
            ("/ü b%2F", "/ü b%2F"),
        ] {
            assert_eq!(path(name).unwrap(), znode);
        }
        for bad in [
            "/",
            "/a/",
            "//a",
            "/a/./b",
            "/a/..",
            "/zookeeper",
            "/zookeeper/a",
            "/\u{e000}",
            "/\u{fffd}",
        ] {
            let error = path(bad).unwrap_err().to_string();
            assert!(error.starts_with("lock name: as a znode must"), "{error}");
        }
    }

    fn child(number: u128, sequence: i32) -> String {
        let path = contender("/x", Uuid::from_u128(number));
        format!("{}{sequence:010}", path.strip_prefix("/x/").unwrap())
    }

    #[test]
    fn a_contender_is_named_as_curator_names_it() {
        assert_eq!(child(7, 12), "_c_00000000-0000-0000-0000-000000000007-lock-0000000012");
    }

    #[test]
    fn the_lowest_sequence_is_first_and_each_other_one_is_behind_the_next_lower() {
        // As the server lists them: in no order. The highest id has the lowest sequence.
        let children = [child(1, 9), child(2, 2), child(3, 10), child(9, 1)];
        let of = |index: usize| queue_place(&children[index], &children).unwrap();
        assert_eq!(of(3), QueuePlace::First);
        assert_eq!(of(1), QueuePlace::Behind(child(9, 1)));
        assert_eq!(of(0), QueuePlace::Behind(child(2, 2)));
        assert_eq!(of(2), QueuePlace::Behind(child(1, 9)));
        assert_eq!(queue_place(&child(4, 3), &children).unwrap(), QueuePlace::Absent);
    }

    #[test]
    fn a_counter_that_has_overflowed_does_not_let_the_newest_overtake() {
        let names = [child(1, i32::MAX - 1), child(2, i32::MAX), child(3, i32::MIN), child(4, -5)];
        assert!(names[2].ends_with("-lock--2147483648"), "{}", names[2]);
        let of = |index: usize| queue_place(&names[index], &names).unwrap();
        assert_eq!(of(0), QueuePlace::First);
        assert_eq!(of(1), QueuePlace::Behind(names[0].clone()));
        assert_eq!(of(2), QueuePlace::Behind(names[1].clone()));
        assert_eq!(of(3), QueuePlace::Behind(names[2].clone()));
        let later = [child(1, -1), child(2, 0)];
        assert_eq!(queue_place(&later[1], &later).unwrap(), QueuePlace::Behind(later[0].clone()));
    }

    #[test]
    fn a_child_that_is_no_contender_is_ignored() {
        for other in
            ["leases", "_c_x-__WRIT__0000000001", "a-lock-", "a-lock-x", "lock-99999999999"]
        {
            let children = [child(1, 1), other.to_owned()];
            let refused = queue_place(&children[0], &children).unwrap_err();
            assert!(matches!(refused, LockError::HeldByOtherKind), "{other}: {refused}");
        }
        let unprotected = [child(1, 1), "lock-0000000000".to_owned()];
        let behind = QueuePlace::Behind(unprotected[1].clone());
        assert_eq!(queue_place(&unprotected[0], &unprotected).unwrap(), behind);
    }

    #[test]
    fn nodes_of_curators_read_write_lock_are_ordered_and_its_readers_are_distinguished() {
        let names = |children: &[&str]| children.iter().map(|it| (*it).to_owned()).collect();
        let children: Vec<String> =
            names(&["_c_a-__WRIT__0000000012", "_c_c-__READ__0000000009", "__READ__0000000010"]);
        let order = in_order(&children).expect("an order");
        let order: Vec<_> = order.iter().map(|node| (node.name, node.is_reader)).collect();
        let expected = [(&children[1], true), (&children[2], true), (&children[0], false)];
        assert_eq!(order, expected.map(|(name, is_reader)| (name.as_str(), is_reader)));
        // Contenders that do not exclude each other have no common order.
        let mixed: Vec<String> = names(&["_c_a-__WRIT__0000000001", "_c_b-lock-0000000002"]);
        assert_eq!(in_order(&mixed), None);
        assert_eq!(in_order(&names(&["leases", "locks"])), None);
        assert_eq!(in_order(&[]), Some(Vec::new()));
    }
}
