//! What an owner tells people of its process: host, process id, a label and the time at which it
//! asked.
//!
//! The tag is a suffix of the owner's id, `<id>@<host>/<process>/<label>/<ms since 1970>`.
//! Mechanisms compare ids as a whole, so every kind that stores its owner stores the tag with it.
//! That takes no record beside the lock and no round trip, and the tag ends with the hold. Waiters
//! of `etcd` and `zookeeper` have one too: their keys and nodes store the owner. So have those of
//! `fair` and `read-write`: the ids of their requests end in it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Owner;

/// The most characters of a host, and of a label: the whole id fits into the 128 bytes of the
/// column `owner`.
const MAX_CHARS: usize = 32;

/// The host, process and label of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerTag {
    /// The host's name, at most 32 characters.
    pub host: String,
    /// The process id on that host.
    pub process: u32,
    /// What the program calls itself or its job, at most 32 characters.
    pub label: String,
    /// When the owner asked for the lock, by its own clock, in ms since 1970.
    pub asked_at_ms: u64,
}

impl OwnerTag {
    /// The tag of this process. Of host and label, characters other than ASCII letters, digits,
    /// `.`, `_` and `-` become `-`, and at most 32 are kept.
    #[must_use]
    pub fn of_this_process(label: &str) -> Self {
        let (host, label) = (plain(&host_name()), plain(label));
        Self { host, process: std::process::id(), label, asked_at_ms: 0 }
    }

    /// The tag in an owner's id; `None` without one.
    #[must_use]
    pub fn find(owner: &str) -> Option<Self> {
        let (_, tag) = owner.rsplit_once('@')?;
        let mut parts = tag.split('/');
        let (host, process, label, asked_at) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_plain = parts.next().is_none() && plain(host) == host && plain(label) == label;
        is_plain.then_some(())?;
        Some(Self {
            host: host.into(),
            process: process.parse().ok()?,
            label: label.into(),
            asked_at_ms: asked_at.parse().ok()?,
        })
    }

    /// The owner with this tag, which asks now.
    pub(crate) fn append_to(&self, owner: &Owner) -> Owner {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let Self { host, process, label, .. } = self;
        Owner::from_text(format!("{owner}@{host}/{process}/{label}/{now}"))
    }

    /// How long ago the owner asked, if both machines' clocks agree.
    fn age(&self) -> Duration {
        let asked_at = UNIX_EPOCH + Duration::from_millis(self.asked_at_ms);
        SystemTime::now().duration_since(asked_at).unwrap_or_default()
    }
}

impl fmt::Display for OwnerTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, process, label, .. } = self;
        write!(
            f,
            "{label} on {host}, process {process}, asked {:.1} s ago",
            self.age().as_secs_f64()
        )
    }
}

/// The name of this host; empty if the system does not tell it.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn plain(text: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    text.chars().take(MAX_CHARS).map(|c| if fits(c) { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_with_a_tag_fits_the_column_and_gives_the_tag_back() {
        let label = "nightly report/of: all@customers, in every country";
        let tag = OwnerTag { process: u32::MAX, ..OwnerTag::of_this_process(label) };
        let tag = OwnerTag { host: "h".repeat(MAX_CHARS), ..tag };
        let owner = tag.append_to(&Owner::fresh());
        assert!(owner.as_str().len() <= 128, "{owner}");
        let found = OwnerTag::find(owner.as_str()).expect("a tag");
        assert_eq!(found.label, "nightly-report-of--all-customers");
        assert_eq!((found.host.clone(), found.process), (tag.host, u32::MAX));
        assert!(found.age() < Duration::from_mins(1), "{found}");
    }

    #[test]
    fn an_owner_of_another_program_has_no_tag() {
        let uuid = "0d1c3d3e-9c0e-4a5e-8d38-0a6a3f6d6c58:1";
        for owner in ["", uuid, "a@b", "a@b/1/c", "a@b/1/c/2/d", "a@b/x/c/2", "a@ü/1/c/2"] {
            assert_eq!(OwnerTag::find(owner), None, "{owner}");
        }
    }
}
