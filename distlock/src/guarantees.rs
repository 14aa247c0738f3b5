//! What a mechanism promises, as data: tests choose their assertions by it, tables print it.

/// The columns of the table of guarantees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarantees {
    /// What the hold lives in.
    pub hold: HoldKind,
    /// Whether the watchdog may prolong the hold.
    pub renewal: bool,
    /// How a waiter learns that the lock is free.
    pub wake: WakeKind,
    /// Whether release makes sure that it frees the caller's own hold.
    pub owner_checked: OwnerCheck,
    /// Whether a repeated acquire or release counts once.
    pub idempotent: Idempotence,
    /// Whether the same owner may enter again.
    pub reentrant: bool,
    /// Whether waiters get the lock in the order in which they came.
    pub fair: bool,
    /// Whether the hold carries a token that rises with every new ownership.
    pub fencing: Fencing,
    /// What the mechanism is known to get wrong; empty if nothing is.
    pub flaws: &'static [&'static str],
}

/// What a hold lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldKind {
    /// Nothing is held.
    Nothing,
    /// This process's memory.
    Process,
    /// A lease on a server, which ends by itself.
    Lease,
}

/// How a waiter learns that the lock is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeKind {
    /// Nobody ever waits.
    Never,
    /// It is told.
    Message,
    /// It looks again and again.
    Poll,
}

/// How release checks the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerCheck {
    /// There is no owner.
    NotApplicable,
    /// Nobody else can release it: the hold is a value of this process.
    Yes,
    /// In the same step that frees the lock.
    Atomic,
}

/// Whether a repeated call counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idempotence {
    /// There is nothing to repeat.
    NotApplicable,
    /// It counts once.
    Yes,
}

/// Whether holds carry a fencing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fencing {
    /// There is nothing to fence.
    NotApplicable,
    /// They do not.
    No,
}
