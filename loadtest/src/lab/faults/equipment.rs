//! What must be there before a fault can happen.

use super::Link;

/// What a fault needs to be there before it can happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a thing of its own")]
pub struct Equipment {
    /// Redis servers that belong to the deployment alone.
    pub own_redis: bool,
    /// A replica of the main one.
    pub follower: bool,
    /// A clock of it that can be set.
    pub clock: bool,
    /// Replicas that do not mind a Redis that evicts.
    pub eviction: bool,
    /// Ways, by [`Link`].
    pub(super) ways: [bool; 4],
}

impl Equipment {
    /// Nothing but that way.
    pub fn way(link: Link) -> Self {
        let mut equipment = Self::default();
        equipment.ways[link as usize] = true;
        equipment
    }

    /// Whether that way is needed.
    pub fn has(self, link: Link) -> bool {
        self.ways[link as usize]
    }

    /// What both need.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let ways = [0, 1, 2, 3].map(|way| self.ways[way] || other.ways[way]);
        Self {
            own_redis: self.own_redis || other.own_redis,
            follower: self.follower || other.follower,
            clock: self.clock || other.clock,
            eviction: self.eviction || other.eviction,
            ways,
        }
    }
}
