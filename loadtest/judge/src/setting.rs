//! Settings of the service that rules depend on.

use serde::{Deserialize, Serialize};

/// What the lock is held for.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One lock per buyer.
    User,
    /// One lock per voucher.
    Voucher,
}

impl Scope {
    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Voucher => "voucher",
        }
    }
}

/// Whether the database has the last word: unique key and stock condition.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Guards {
    /// The lock is all there is.
    Off,
    /// As in production.
    On,
}

impl Guards {
    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
        }
    }
}
