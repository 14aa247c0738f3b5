//! The table of guarantees: what each kind promises, and what it is known to get wrong.
//!
//! It stands in one place, whatever backends are compiled in, so that it can be read, printed and
//! compared with the documentation.

use crate::{Answer, Fencing, Guarantees, HoldKind, LockKind, OwnerCheck, RenewalKind, WakeKind};

/// What a kind promises. For [`LockKind::Multi`] the row speaks of no particular members; a
/// composite that was built knows its own.
pub const fn guarantees(kind: LockKind) -> Guarantees {
    match kind {
        LockKind::None => NOTHING,
        LockKind::Local => LOCAL,
        LockKind::SetnxExpire => SETNX_EXPIRE,
        LockKind::SetNx => SET_NX,
        LockKind::OwnerCheck => OWNER_CHECK,
        LockKind::LuaRelease => LUA_RELEASE,
        LockKind::GetsetTimestamp => GETSET_TIMESTAMP,
        LockKind::Reentrant => REENTRANT,
        LockKind::Redisson => REDISSON,
        LockKind::Fair => FAIR,
        LockKind::ReadWrite => READ_WRITE,
        LockKind::Multi => MULTI,
        LockKind::Red => RED,
        LockKind::MysqlTable => MYSQL_TABLE,
        LockKind::MysqlRow => MYSQL_ROW,
        LockKind::MysqlNamed => MYSQL_NAMED,
        LockKind::Zookeeper => ZOOKEEPER,
    }
}

const NOTHING: Guarantees = Guarantees {
    hold: HoldKind::Nothing,
    renewal: RenewalKind::NotApplicable,
    wake: WakeKind::Never,
    owner_checked: OwnerCheck::NotApplicable,
    idempotent: Answer::NotApplicable,
    reentrant: Answer::NotApplicable,
    fair: Answer::NotApplicable,
    fencing: Fencing::NotApplicable,
    flaws: &["excludes nobody"],
};

const LOCAL: Guarantees = Guarantees {
    hold: HoldKind::Process,
    renewal: RenewalKind::NotApplicable,
    wake: WakeKind::Message,
    owner_checked: OwnerCheck::Yes,
    idempotent: Answer::Yes,
    reentrant: Answer::No,
    fair: Answer::Yes,
    fencing: Fencing::No,
    flaws: &["replicas do not see each other"],
};

/// A lease in Redis that nobody renews and whose owner nobody checks.
const BARE_LEASE: Guarantees = Guarantees {
    hold: HoldKind::Lease,
    renewal: RenewalKind::No,
    wake: WakeKind::Poll,
    owner_checked: OwnerCheck::No,
    idempotent: Answer::No,
    reentrant: Answer::No,
    fair: Answer::No,
    fencing: Fencing::No,
    flaws: &[],
};

/// A promoted replica that has not heard of a lock grants it anew.
const FAILOVER: &str = "a failover to a replica that lags forgets the lock";

/// A lease counts by the wall clock of its server.
const SERVER_CLOCK: &str = "a clock of the server that is set forward ends the lease early";

/// What a frozen holder does before it looks.
const PAUSED: &str = "a holder that is paused past its lease works on unless its token is checked";

/// What a holder does that is paused between its read and its write.
const STALE_READER: &str = "a fence that is checked at the write alone lets a stale reader write";

const SETNX_EXPIRE: Guarantees = Guarantees {
    flaws: &[
        "a holder that dies between SETNX and EXPIRE locks everybody out for ever",
        "DEL removes whoever's lock is there",
        "work longer than the lease has two holders",
        FAILOVER,
        SERVER_CLOCK,
    ],
    ..BARE_LEASE
};

const SET_NX: Guarantees = Guarantees {
    flaws: &[
        "work longer than the lease has two holders",
        "its late DEL frees the successor's lock, and a third enters",
        FAILOVER,
        SERVER_CLOCK,
    ],
    ..BARE_LEASE
};

const OWNER_CHECK: Guarantees = Guarantees {
    owner_checked: OwnerCheck::Racy,
    flaws: &[
        "a pause between GET and DEL frees the successor's lock",
        "an owner that is a number of the process collides between replicas",
        "work longer than the lease has two holders",
        FAILOVER,
        SERVER_CLOCK,
    ],
    ..BARE_LEASE
};

const LUA_RELEASE: Guarantees = Guarantees {
    owner_checked: OwnerCheck::Atomic,
    idempotent: Answer::Yes,
    flaws: &[
        "work longer than the lease has two holders",
        "the same owner cannot enter again",
        FAILOVER,
        SERVER_CLOCK,
    ],
    ..BARE_LEASE
};

const GETSET_TIMESTAMP: Guarantees = Guarantees {
    flaws: &[
        "trusts the clocks of the clients",
        "a loser overwrites the winner's deadline",
        "work longer than the lease has two holders",
        FAILOVER,
    ],
    ..BARE_LEASE
};

const REENTRANT: Guarantees = Guarantees {
    owner_checked: OwnerCheck::Atomic,
    reentrant: Answer::Yes,
    flaws: &[
        "work longer than the lease has two holders",
        "an answer that is lost on re-entry counts twice",
        FAILOVER,
        SERVER_CLOCK,
    ],
    ..BARE_LEASE
};

const REDISSON: Guarantees = Guarantees {
    renewal: RenewalKind::Yes,
    wake: WakeKind::Message,
    owner_checked: OwnerCheck::Atomic,
    idempotent: Answer::Yes,
    reentrant: Answer::Yes,
    fencing: Fencing::Optional,
    flaws: &[FAILOVER, SERVER_CLOCK, PAUSED, STALE_READER],
    ..BARE_LEASE
};

const FAIR: Guarantees = Guarantees { fair: Answer::Yes, ..REDISSON };

const READ_WRITE: Guarantees = REDISSON;

const MULTI: Guarantees = Guarantees {
    hold: HoldKind::WeakestMember,
    renewal: RenewalKind::Yes,
    wake: WakeKind::Poll,
    owner_checked: OwnerCheck::Atomic,
    idempotent: Answer::Yes,
    reentrant: Answer::No,
    fair: Answer::No,
    fencing: Fencing::No,
    flaws: &["one member that is away keeps everybody out", PAUSED, STALE_READER],
};

const RED: Guarantees = Guarantees {
    renewal: RenewalKind::Yes,
    owner_checked: OwnerCheck::Atomic,
    idempotent: Answer::Yes,
    flaws: &[
        "a node that restarts empty too early has two majorities",
        "a clock that jumps on a majority ends the lock early",
        "a holder that is paused past the validity has no fence",
        "a restart of all nodes without durable storage forgets the lock",
        "a restart of all nodes with AOF everysec forgets the lock",
    ],
    ..BARE_LEASE
};

const MYSQL_TABLE: Guarantees = Guarantees {
    renewal: RenewalKind::Yes,
    owner_checked: OwnerCheck::Atomic,
    idempotent: Answer::Yes,
    reentrant: Answer::Yes,
    fencing: Fencing::Yes,
    flaws: &[
        SERVER_CLOCK,
        "a failover to a replica that lags forgets the lock, and gives its token out again",
        PAUSED,
        STALE_READER,
    ],
    ..BARE_LEASE
};

const MYSQL_ROW: Guarantees = Guarantees {
    hold: HoldKind::Transaction,
    renewal: RenewalKind::NotApplicable,
    wake: WakeKind::Server,
    owner_checked: OwnerCheck::Atomic,
    idempotent: Answer::Yes,
    reentrant: Answer::No,
    fair: Answer::No,
    fencing: Fencing::NotNeeded,
    flaws: &[
        "under autocommit everybody enters",
        "two who insert a missing row deadlock",
        "a plain read before the lock fixes an old snapshot",
        "each waiter holds a connection",
        "Galera grants it on each node, and refuses only writes of the same row",
    ],
};

const MYSQL_NAMED: Guarantees = Guarantees {
    hold: HoldKind::Session,
    renewal: RenewalKind::Heartbeat,
    wake: WakeKind::Server,
    owner_checked: OwnerCheck::Atomic,
    idempotent: Answer::Yes,
    reentrant: Answer::No,
    fair: Answer::No,
    fencing: Fencing::No,
    flaws: &[
        "each holder and waiter has a connection of its own",
        "a session that the server ends frees the lock before its holder knows",
        "a session that is cut off keeps its lock for as long as the server waits for it",
        "Galera grants it on each node",
        "a holder that is paused past its session works on, and there is no fence",
    ],
};

const ZOOKEEPER: Guarantees = Guarantees {
    hold: HoldKind::Session,
    renewal: RenewalKind::Heartbeat,
    wake: WakeKind::Watch,
    owner_checked: OwnerCheck::Atomic,
    idempotent: Answer::Yes,
    reentrant: Answer::Yes,
    fair: Answer::Yes,
    fencing: Fencing::Yes,
    flaws: &[
        "a holder that is paused past its session works on unless its token is checked",
        STALE_READER,
    ],
};
