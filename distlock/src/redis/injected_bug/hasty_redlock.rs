//! Redlock that ignores the time of asking: no time-out per server, and no look at the clock after
//! a majority.

use futures_util::future::{BoxFuture, join_all};
use tokio::time::Instant;

use super::super::{RedisConnection, RedisServer};
use crate::Redlock;
use crate::kinds::redis::set_nx;
use crate::{
    Acquisition, Guarantees, Hold, LockError, Locker, Release, RenewalTarget, Request, Validity,
};

/// `redlock` that takes a majority for the lock, and looks at no clock.
pub(super) struct HastyRedlock {
    redlock: Redlock,
    connections: Vec<RedisConnection>,
}

impl HastyRedlock {
    pub(super) fn new(servers: &[RedisServer]) -> Result<Self, LockError> {
        let connections = servers.iter().map(RedisServer::connection).collect();
        Ok(Self { redlock: Redlock::new(servers)?, connections })
    }
}

impl Locker for HastyRedlock {
    fn name(&self) -> &'static str {
        self.redlock.name()
    }

    fn guarantees(&self) -> Guarantees {
        self.redlock.guarantees()
    }

    fn check_servers(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move { self.redlock.check_servers().await })
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.redlock.flush().await;
        })
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        let (redlock, connections) = (self.redlock.clone(), self.connections.clone());
        Box::new(HastyAcquisition { redlock, connections, request })
    }
}

struct HastyAcquisition {
    redlock: Redlock,
    connections: Vec<RedisConnection>,
    request: Request,
}

impl Acquisition for HastyAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            let request = &self.request;
            let asked = self.connections.iter_mut().map(|server| set_nx::take(server, request));
            let granted =
                join_all(asked).await.iter().filter(|it| matches!(it, Ok(Some(_)))).count();
            if granted > self.connections.len() / 2 {
                let validity = Validity::of_lease(Instant::now(), request.lease);
                let (redlock, request) = (self.redlock.clone(), request.clone());
                return Ok(Some(
                    Box::new(HastyHold { redlock, request, validity }) as Box<dyn Hold>
                ));
            }
            self.abandon().await?;
            Ok(None)
        })
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move { self.redlock.begin(self.request.clone()).abandon().await })
    }
}

struct HastyHold {
    redlock: Redlock,
    request: Request,
    validity: Validity,
}

impl Hold for HastyHold {
    fn validity(&self) -> Validity {
        self.validity
    }

    fn renewal_target(&self) -> Option<RenewalTarget> {
        Some(RenewalTarget { renewer: self.redlock.renewer(), request: self.request.clone() })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            self.redlock.begin(self.request.clone()).abandon().await?;
            Ok(Release::Released)
        })
    }
}
