//! The connection on which commands are sent: all of a process share it.

mod address;
mod cluster;
mod packets;
mod slots;
mod steady;

use std::sync::Arc;

use redis::aio::{
    ConnectionLike, ConnectionManager, ConnectionManagerConfig, MultiplexedConnection,
};
use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, RedisFuture, RedisResult, Value,
};

pub use address::RedisAddress;
use cluster::Cluster;
pub(crate) use slots::slot;
use steady::Steady;

/// A connection to a Redis, or to all masters of a Redis Cluster, that is made anew when it ends or
/// falls silent. Cheap to clone; clones use the same sockets.
///
/// On a cluster a command goes to the master that has its key, and one without a key to all.
///
/// Commands that are begun before the earlier ones are answered may arrive in another order; those
/// of a pipeline arrive in theirs.
#[derive(Clone)]
pub struct RedisConnection(Way);

#[derive(Clone)]
enum Way {
    Server(Steady),
    Cluster(Arc<Cluster>),
}

impl RedisConnection {
    /// Connects with the first command. `config` says how long an answer may take.
    pub fn later<'a>(
        address: impl Into<RedisAddress<'a>>,
        config: ConnectionManagerConfig,
    ) -> RedisResult<Self> {
        let address = address.into();
        let mut clients = address.clients()?;
        let server = if address.is_cluster() { None } else { clients.pop() };
        Ok(Self(match server {
            Some(server) => Way::Server(Steady::later(server, config)?),
            None => Way::Cluster(Cluster::new(clients, config)),
        }))
    }

    /// Connects now; fails if the server, or a master of the cluster, does not answer.
    pub async fn now<'a>(
        address: impl Into<RedisAddress<'a>>,
        config: ConnectionManagerConfig,
    ) -> RedisResult<Self> {
        let mut connection = Self::later(address, config)?;
        redis::cmd("PING").exec_async(&mut connection).await?;
        Ok(connection)
    }

    /// Whether it is one to a cluster.
    pub fn is_cluster(&self) -> bool {
        matches!(self.0, Way::Cluster(_))
    }

    /// A connection to each server that has keys.
    pub async fn servers(&self) -> RedisResult<Vec<Self>> {
        match &self.0 {
            Way::Server(_) => Ok(vec![self.clone()]),
            Way::Cluster(cluster) => {
                let masters = cluster.masters().await?;
                Ok(masters.into_iter().map(|master| Self(Way::Server(master))).collect())
            }
        }
    }

    /// What the server is called that has a key, as far as is known: one that has it not says so.
    pub(crate) fn known_name(&self, key: &str) -> Arc<str> {
        match &self.0 {
            Way::Server(server) => Arc::clone(server.name()),
            Way::Cluster(cluster) => cluster
                .known_master(slot(key.as_bytes()))
                .unwrap_or_else(|| cluster.seed().get_connection_info().addr().to_string().into()),
        }
    }

    /// What the server is called that has a key.
    pub(crate) async fn name(&self, key: &str) -> RedisResult<Arc<str>> {
        match &self.0 {
            Way::Server(server) => Ok(Arc::clone(server.name())),
            Way::Cluster(cluster) => cluster.master(slot(key.as_bytes())).await,
        }
    }

    /// How to connect to the server that is called so.
    pub(crate) fn client_of(&self, name: &str) -> RedisResult<Client> {
        match &self.0 {
            Way::Server(server) => Ok(server.client().clone()),
            Way::Cluster(cluster) => cluster.client(name),
        }
    }

    /// A connection of one's own to the server that has a key.
    pub(crate) async fn own(
        &self,
        key: &str,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let client = self.client_of(&self.name(key).await?)?;
        let connection = client.get_multiplexed_async_connection_with_config(config).await;
        connection.inspect_err(|failure| self.seen(failure))
    }

    /// Learns from what a server answered on a connection of one's own.
    pub(crate) fn seen(&self, failure: &RedisError) {
        if let Way::Cluster(cluster) = &self.0 {
            cluster.seen(failure);
        }
    }

    /// Asks which server has which keys, unless somebody has just done so.
    pub(crate) async fn refresh(&self) -> RedisResult<()> {
        match &self.0 {
            Way::Server(_) => Ok(()),
            Way::Cluster(cluster) => cluster.refresh().await,
        }
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let server = match &self.0 {
                Way::Server(server) => server,
                Way::Cluster(cluster) => return cluster.send(command).await,
            };
            server.command(command).await
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let server = match &self.0 {
                Way::Server(server) => server,
                Way::Cluster(cluster) => {
                    return cluster.send_together(pipeline, (offset, count)).await;
                }
            };
            let send = |mut manager: ConnectionManager| async move {
                manager.send_packed_commands(pipeline, offset, count).await
            };
            server.send(send).await
        })
    }

    fn get_db(&self) -> i64 {
        match &self.0 {
            Way::Server(server) => server.client().get_connection_info().redis_settings().db(),
            Way::Cluster(_) => 0,
        }
    }
}
