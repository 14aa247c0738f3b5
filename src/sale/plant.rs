//! Deliberate bugs, to show that the laboratory catches them. Refused without `--lab`.

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Plant {
    /// The lock is freed before the commit.
    ReleaseBeforeCommit,
    /// The stock update has lost its condition.
    NoStockCondition,
    /// The audit tells that all is well.
    LyingAudit,
}
