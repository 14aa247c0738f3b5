//! Renews the holds of all kinds that are hashes of owner to hold count, many with one script. On a
//! cluster, the renewers of all kinds send one script per slot, all at once.

use std::collections::BTreeMap;

use std::fmt::Display;

use futures_util::future::{BoxFuture, join_all};
use tokio::time::Instant;

use super::RedisConnection;
use super::connection::slot;
use super::keys::ms;
use super::replication::{ReplicatedWriter, WriteError};
use super::script::LuaScript;
use crate::{Renewal, Renewer, Request, Validity};

const RENEW_SCRIPT: &str = include_str!("../../lua/renew.lua");

/// Renews holds together: on a cluster those of each slot, which is that of their names, else all.
pub(crate) async fn per_slot<F: Future<Output = Vec<Renewal>>>(
    connection: &RedisConnection,
    holds: &[Request],
    renew: impl Fn(Vec<Request>) -> F,
) -> Vec<Renewal> {
    if !connection.is_cluster() {
        return renew(holds.to_vec()).await;
    }
    let mut slots = BTreeMap::<u16, Vec<usize>>::new();
    for (at, hold) in holds.iter().enumerate() {
        slots.entry(slot(hold.name.as_str().as_bytes())).or_default().push(at);
    }
    let batch = |places: &Vec<usize>| places.iter().map(|at| holds[*at].clone()).collect();
    let answers = join_all(slots.values().map(|places| renew(batch(places)))).await;
    let mut renewals = vec![Renewal::Unknown; holds.len()];
    for (places, answers) in slots.values().zip(answers) {
        for (at, answer) in places.iter().zip(answers) {
            renewals[*at] = answer;
        }
    }
    renewals
}

/// One for all holds of a server that are written in the same way: what is due together is renewed
/// together.
pub(crate) struct RedisRenewer {
    connection: RedisConnection,
    writer: ReplicatedWriter,
    script: LuaScript,
}

impl RedisRenewer {
    pub(crate) fn new(connection: &RedisConnection, writer: ReplicatedWriter) -> Self {
        Self { connection: connection.clone(), writer, script: LuaScript::new(RENEW_SCRIPT) }
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

impl Renewer for RedisRenewer {
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            per_slot(&self.connection, holds, |holds| self.renew_together(holds)).await
        })
    }
}

impl RedisRenewer {
    async fn renew_together(&self, holds: Vec<Request>) -> Vec<Renewal> {
        let sent = Instant::now();
        renewals(sent, &holds, self.send(&holds).await)
    }
}

/// What a script's answers say of the holds: 1 for each that was renewed.
pub(crate) fn renewals(
    sent: Instant,
    holds: &[Request],
    outcome: Result<Vec<i64>, impl Display>,
) -> Vec<Renewal> {
    match outcome {
        Ok(answers) => holds
            .iter()
            .zip(answers)
            .map(|(hold, answer)| match answer {
                1 => Renewal::Renewed(Validity::of_lease(sent, hold.lease)),
                _ => Renewal::Lost,
            })
            .collect(),
        Err(error) => {
            tracing::debug!(%error, "renewal failed; watchdog retries");
            vec![Renewal::Unknown; holds.len()]
        }
    }
}
