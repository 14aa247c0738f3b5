//! Redlock without the time that the asking took: neither a bound for each answer, nor a look at
//! the clock when a majority has said yes.

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::super::{Red, RedisConnection, RedisServer, set_nx};
use crate::{Acquisition, Belief, Guarantees, Hold, LockError, Locker, Release, Request, Upkeep};

/// `red` that takes a majority for the lock, and looks at no clock.
pub(super) struct HastyRed {
    red: Red,
    connections: Vec<RedisConnection>,
}

impl HastyRed {
    pub(super) fn new(servers: &[RedisServer]) -> Result<Self, LockError> {
        let connections = servers.iter().map(RedisServer::connection).collect();
        Ok(Self { red: Red::new(servers)?, connections })
    }
}

#[async_trait]
impl Locker for HastyRed {
    fn name(&self) -> &'static str {
        self.red.name()
    }

    fn guarantees(&self) -> Guarantees {
        self.red.guarantees()
    }

    async fn check_servers(&self) -> Result<(), LockError> {
        self.red.check_servers().await
    }

    async fn flush(&self) {
        self.red.flush().await;
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        let (red, connections) = (self.red.clone(), self.connections.clone());
        Box::new(HastyAcquisition { red, connections, request })
    }
}

struct HastyAcquisition {
    red: Red,
    connections: Vec<RedisConnection>,
    request: Request,
}

#[async_trait]
impl Acquisition for HastyAcquisition {
    async fn attempt(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        let request = &self.request;
        let asked = self.connections.iter_mut().map(|server| set_nx::take(server, request));
        let granted = join_all(asked).await.iter().filter(|it| matches!(it, Ok(Some(_)))).count();
        if granted > self.connections.len() / 2 {
            let belief = Belief::in_lease(Instant::now(), request.lease);
            let (red, request) = (self.red.clone(), request.clone());
            return Ok(Some(Box::new(HastyHold { red, request, belief })));
        }
        self.abandon().await?;
        Ok(None)
    }

    async fn abandon(&mut self) -> Result<(), LockError> {
        self.red.begin(self.request.clone()).abandon().await
    }
}

struct HastyHold {
    red: Red,
    request: Request,
    belief: Belief,
}

#[async_trait]
impl Hold for HastyHold {
    fn belief(&self) -> Belief {
        self.belief
    }

    fn upkeep(&self) -> Option<Upkeep> {
        Some(Upkeep { renewer: self.red.renewer(), request: self.request.clone() })
    }

    async fn release(&mut self) -> Result<Release, LockError> {
        self.red.begin(self.request.clone()).abandon().await?;
        Ok(Release::Released)
    }
}
