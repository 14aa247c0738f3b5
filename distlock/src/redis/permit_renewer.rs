//! The renewal of permits with leases, for all semaphores of a server together.

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::RedisConnection;
use super::keys::{ms, prefixed};
use super::renew::{per_slot, renewals};
use super::script::LuaScript;
use crate::{LockName, Renewal, Renewer, Request};

/// The sorted set of the permits that are taken.
pub(super) fn permits_key(name: &LockName) -> String {
    prefixed("distlock_permits", name)
}

/// Renews permits of all semaphores of a server, many with one script.
pub(super) struct PermitRenewer {
    connection: RedisConnection,
    script: LuaScript,
}

impl PermitRenewer {
    pub(super) fn new(connection: RedisConnection) -> Self {
        let script = LuaScript::new(include_str!("../../lua/expirable_renew.lua"));
        Self { connection, script }
    }
}

impl Renewer for PermitRenewer {
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            per_slot(&self.connection, holds, |holds| self.renew_together(holds)).await
        })
    }
}

impl PermitRenewer {
    async fn renew_together(&self, holds: Vec<Request>) -> Vec<Renewal> {
        let sent = Instant::now();
        let keys: Vec<_> = holds.iter().map(|hold| permits_key(&hold.name)).collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let args: Vec<_> = holds
            .iter()
            .flat_map(|hold| [hold.owner.to_string(), ms(hold.lease).to_string()])
            .collect();
        let mut connection = self.connection.clone();
        renewals(sent, &holds, self.script.call(&mut connection, &keys, args).await)
    }
}
