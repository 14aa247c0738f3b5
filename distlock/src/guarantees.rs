//! What a mechanism promises, as data: tests choose their assertions by it, tables print it.

use std::fmt;
use std::time::Duration;

use crate::Lease;

/// The columns of the table of guarantees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarantees {
    /// What the hold lives in.
    pub hold: HoldKind,
    /// What keeps the hold alive.
    pub renewal: RenewalKind,
    /// How a waiter learns that the lock is free.
    pub wake: WakeKind,
    /// Whether release makes sure that it frees the caller's own hold.
    pub owner_checked: OwnerCheck,
    /// Whether a repeated acquire or release counts once.
    pub idempotent: Support,
    /// Whether the same owner may enter again.
    pub reentrant: Support,
    /// Whether waiters get the lock in the order in which they came.
    pub fair: Support,
    /// Whether the hold carries a token that rises with every new ownership.
    pub fencing: Fencing,
    /// What the mechanism is known to get wrong; empty if nothing is.
    pub flaws: &'static [&'static str],
}

impl Guarantees {
    /// The lease that suits the mechanism: renewed where it renews, else fixed.
    #[must_use]
    pub fn lease(&self, length: Duration) -> Lease {
        match self.renewal {
            RenewalKind::Yes | RenewalKind::Heartbeat => Lease::Renewed(length),
            RenewalKind::NotApplicable | RenewalKind::No => Lease::Fixed(length),
        }
    }

    /// Whether the hold lives on a server, where other processes meet it.
    #[must_use]
    pub fn is_on_a_server(&self) -> bool {
        !matches!(self.hold, HoldKind::Nothing | HoldKind::Process)
    }

    /// Whether a late release cannot free another owner's lock.
    pub(crate) fn frees_only_its_own(&self) -> bool {
        match self.owner_checked {
            OwnerCheck::Atomic | OwnerCheck::Yes => true,
            OwnerCheck::NotApplicable | OwnerCheck::No | OwnerCheck::Racy => false,
        }
    }
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
    /// A session with a server, which ends after a time-out without a heartbeat.
    Session,
    /// A database transaction.
    Transaction,
    /// What the weakest of several locks lives in; the other columns are likewise its.
    WeakestMember,
}

/// What keeps a hold alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewalKind {
    /// It needs nothing.
    NotApplicable,
    /// Nothing: it ends with its lease.
    No,
    /// The watchdog may renew its lease.
    Yes,
    /// A heartbeat keeps its session.
    Heartbeat,
}

/// How a waiter learns that the lock is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeKind {
    /// No caller ever waits.
    Never,
    /// It is told.
    Message,
    /// It looks again and again.
    Poll,
    /// It waits inside the server.
    Server,
    /// It watches its predecessor.
    Watch,
}

/// How release checks the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerCheck {
    /// There is no owner.
    NotApplicable,
    /// It does not.
    No,
    /// In a step before the one that frees the lock.
    Racy,
    /// In the same step that frees the lock.
    Atomic,
    /// Only the holder can release it: the hold is a value of this process.
    Yes,
}

/// Yes, no, or the question does not arise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// The question does not arise.
    NotApplicable,
    /// No.
    No,
    /// Yes.
    Yes,
}

impl Support {
    /// Whether it is yes.
    #[must_use]
    pub fn is_yes(self) -> bool {
        self == Self::Yes
    }
}

/// Whether holds carry a fencing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fencing {
    /// There is nothing to fence.
    NotApplicable,
    /// They do not.
    No,
    /// If the locks have a token issuer and the options ask for a token.
    Optional,
    /// Always.
    Yes,
    /// The effect ends with the hold.
    NotNeeded,
}

/// The words of the table.
macro_rules! words {
    ($type:ty { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $word),+ })
            }
        }
    };
}

words!(HoldKind {
    Nothing => "-",
    Process => "process",
    Lease => "lease",
    Session => "session",
    Transaction => "transaction",
    WeakestMember => "weakest member",
});
words!(RenewalKind { NotApplicable => "-", No => "no", Yes => "yes", Heartbeat => "heartbeat" });
words!(WakeKind {
    Never => "-",
    Message => "message",
    Poll => "poll",
    Server => "server",
    Watch => "watch",
});
words!(OwnerCheck {
    NotApplicable => "-",
    No => "no",
    Racy => "racy",
    Atomic => "atomic",
    Yes => "yes",
});
words!(Support { NotApplicable => "-", No => "no", Yes => "yes" });
words!(Fencing {
    NotApplicable => "-",
    No => "no",
    Optional => "optional",
    Yes => "yes",
    NotNeeded => "not needed",
});
