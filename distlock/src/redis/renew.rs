//! Renews the holds of all kinds that are hashes of owner to hold count, many with one script.

use std::fmt::Display;

use async_trait::async_trait;
use tokio::time::Instant;

use super::keys::ms;
use super::replication::{WriteError, Writer};
use super::script::LuaScript;
use crate::{Belief, Renewal, Renewer, Request};

const RENEW: &str = include_str!("../../lua/renew.lua");

/// One for all holds of a server that are written in the same way: what is due together is renewed
/// together. A Redis Cluster would need one batch per slot.
pub(crate) struct RedisRenewer {
    writer: Writer,
    script: LuaScript,
}

impl RedisRenewer {
    pub(crate) fn new(writer: Writer) -> Self {
        Self { writer, script: LuaScript::new(RENEW) }
    }

    async fn send(&self, holds: &[Request]) -> Result<Vec<i64>, WriteError> {
        let keys: Vec<_> = holds.iter().map(|hold| hold.name.as_str()).collect();
        let args: Vec<_> = holds
            .iter()
            .flat_map(|hold| [hold.owner.to_string(), ms(hold.lease).to_string()])
            .collect();
        self.writer.call(&self.script, &keys, args, |_| true).await
    }
}

#[async_trait]
impl Renewer for RedisRenewer {
    async fn renew(&self, holds: &[Request]) -> Vec<Renewal> {
        let sent = Instant::now();
        renewals(sent, holds, self.send(holds).await)
    }
}

/// What a script's answers say of the holds: 1 for each that was renewed.
pub(super) fn renewals(
    sent: Instant,
    holds: &[Request],
    outcome: Result<Vec<i64>, impl Display>,
) -> Vec<Renewal> {
    match outcome {
        Ok(answers) => holds
            .iter()
            .zip(answers)
            .map(|(hold, answer)| match answer {
                1 => Renewal::Renewed(Belief::in_lease(sent, hold.lease)),
                _ => Renewal::Lost,
            })
            .collect(),
        Err(error) => {
            tracing::debug!(%error, "a renewal has no answer");
            vec![Renewal::Unknown; holds.len()]
        }
    }
}
