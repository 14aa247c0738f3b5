//! What callers may rely on, checked by the compiler: `Send`, `Sync`, `Debug`.

use std::fmt::Debug;

use crate::{
    Backends, DeadlockDetector, Guarantees, Guard, ListCursor, LockError, LockKind, LockName,
    LockOptions, Locks, LostSignal, Multi, Owner, RenewalTarget, Request, Token, Validity,
    WakeEvent, WakeStrategy,
};

const fn is_shared<T: Send + Sync + Debug>() {}

const _: () = {
    is_shared::<Backends>();
    is_shared::<DeadlockDetector>();
    is_shared::<Guard>();
    is_shared::<Guarantees>();
    is_shared::<LockError>();
    is_shared::<LockKind>();
    is_shared::<LockName>();
    is_shared::<LockOptions>();
    is_shared::<Locks>();
    is_shared::<LostSignal>();
    is_shared::<Multi>();
    is_shared::<Owner>();
    is_shared::<RenewalTarget>();
    is_shared::<Request>();
    is_shared::<Token>();
    is_shared::<Validity>();
};

#[cfg(feature = "redis")]
const _: () = {
    is_shared::<crate::CountdownLatch>();
    is_shared::<crate::ExpirableSemaphore>();
    is_shared::<crate::Permit>();
    is_shared::<crate::Permits>();
    is_shared::<crate::ReadWrite>();
    is_shared::<crate::RedisConnection>();
    is_shared::<crate::RedisServer>();
    is_shared::<crate::Semaphore>();
};

#[cfg(feature = "mysql")]
const _: () = {
    is_shared::<crate::MySqlServer>();
    is_shared::<crate::mysql::MySqlTokens>();
};

#[cfg(feature = "etcd")]
const _: () = is_shared::<crate::EtcdServer>();
#[cfg(feature = "nats")]
const _: () = is_shared::<crate::NatsServer>();

#[cfg(feature = "zookeeper")]
const _: () = is_shared::<crate::ZooKeeperServer>();

/// `Debug` of types whose insides mean nothing to a reader: the name, and that there is more.
macro_rules! opaque_debug {
    ($($type:ident $(<$life:lifetime>)?),+ $(,)?) => {
        $(impl std::fmt::Debug for $type $(<$life>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type)).finish_non_exhaustive()
            }
        })+
    };
}

opaque_debug!(
    Backends,
    DeadlockDetector,
    ListCursor,
    Locks,
    Multi,
    RenewalTarget,
    WakeEvent,
    WakeStrategy<'_>
);

#[cfg(feature = "redis")]
mod redis {
    use crate::{
        CountdownLatch, ExpirableSemaphore, GetsetTimestamp, OwnerCheckLock, ReadWrite,
        RedisConnection, RedisServer, RedisWaitExchange, Redisson, RedissonLock, Redlock,
        Semaphore, SetnxExpire,
    };

    opaque_debug!(
        CountdownLatch,
        ExpirableSemaphore,
        GetsetTimestamp,
        OwnerCheckLock,
        ReadWrite,
        RedisConnection,
        RedisServer,
        RedisWaitExchange,
        Redisson,
        RedissonLock,
        Redlock,
        Semaphore,
        SetnxExpire,
    );
}

#[cfg(feature = "injected-bugs")]
mod injected_bugs {
    use crate::injected_bug::RedisTokens;

    opaque_debug!(RedisTokens);
}

#[cfg(feature = "mysql")]
mod mysql {
    use crate::lock_transaction::LockTransaction;
    use crate::mysql::{MySqlServer, MySqlTokens};

    opaque_debug!(LockTransaction, MySqlServer, MySqlTokens);
}

#[cfg(feature = "etcd")]
mod etcd {
    use crate::EtcdServer;

    opaque_debug!(EtcdServer);
}

#[cfg(feature = "nats")]
mod nats {
    use crate::NatsServer;

    opaque_debug!(NatsServer);
}

#[cfg(feature = "zookeeper")]
mod zookeeper {
    use crate::ZooKeeperServer;

    opaque_debug!(ZooKeeperServer);
}
