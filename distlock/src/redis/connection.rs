//! The connection on which commands are sent: all of a process share it.

mod address;
mod cluster;
mod command_batcher;
mod master;
mod reconnecting;
mod sentinels;
mod slots;

use std::future::pending;
use std::sync::Arc;

use redis::aio::{
    ConnectionLike, ConnectionManager, ConnectionManagerConfig, MultiplexedConnection,
};
use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, ProtocolVersion, RedisError, RedisFuture,
    RedisResult, Role, Value,
};

pub use address::RedisAddress;
use address::Topology;
use cluster::Cluster;
use master::Master;
use reconnecting::ReconnectingConnection;
use sentinels::{Sentinels, no_master};
pub(crate) use slots::slot;

/// A connection to a Redis, to the master that its sentinels name, or to all masters of a Redis
/// Cluster, that is replaced when it ends or falls silent. Cheap to clone; clones use the same
/// sockets.
///
/// On a cluster a command goes to the master that has its key, and one without a key to all.
///
/// Commands that are begun before the earlier ones are answered may arrive in another order; those
/// of a pipeline arrive in theirs.
#[derive(Clone)]
pub struct RedisConnection(Route);

#[derive(Clone)]
enum Route {
    Server(ReconnectingConnection),
    Sentinel(Arc<Master>),
    Cluster(Arc<Cluster>),
}

/// Asks whether the server answers. One whose disk has failed says so to each write and to PING,
/// and answers all the same.
pub(super) async fn ping(connection: &mut impl ConnectionLike) -> RedisResult<()> {
    match redis::cmd("PING").exec_async(connection).await {
        Err(error) if error.code() == Some("MISCONF") => Ok(()),
        answer => answer,
    }
}

/// Fails unless the server says that it is a master.
async fn check_role(connection: &mut impl ConnectionLike) -> RedisResult<()> {
    let role: Role = redis::cmd("ROLE").query_async(connection).await?;
    match role {
        Role::Primary { .. } => Ok(()),
        _ => Err(no_master("the server that the sentinels name says that it is no master")),
    }
}

impl RedisConnection {
    /// Connects with the first command. `config` says how long an answer may take.
    pub fn connect_lazily<'a>(
        address: impl Into<RedisAddress<'a>>,
        config: ConnectionManagerConfig,
    ) -> RedisResult<Self> {
        Ok(Self(match address.into().topology()? {
            Topology::Server(client) => {
                Route::Server(ReconnectingConnection::connect_lazily(client, config)?)
            }
            Topology::Sentinel { service, sentinels, master } => {
                Route::Sentinel(Master::new(Sentinels::new(service, sentinels), master, config))
            }
            Topology::Cluster(nodes) => Route::Cluster(Cluster::new(nodes, config)),
        }))
    }

    /// Connects now; fails if the server, or a master of the cluster, does not answer.
    pub async fn connect<'a>(
        address: impl Into<RedisAddress<'a>>,
        config: ConnectionManagerConfig,
    ) -> RedisResult<Self> {
        let connection = Self::connect_lazily(address, config)?;
        connection.ping().await?;
        Ok(connection)
    }

    /// Asks whether the server, or each master of the cluster, answers.
    pub async fn ping(&self) -> RedisResult<()> {
        ping(&mut self.clone()).await
    }

    /// Whether it is one to a cluster.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        matches!(self.0, Route::Cluster(_))
    }

    /// A connection to each server that has keys. A cluster is asked for its masters each time:
    /// what is sent to one of them does not show that another has taken its place.
    pub async fn servers(&self) -> RedisResult<Vec<Self>> {
        match &self.0 {
            Route::Server(_) | Route::Sentinel(_) => Ok(vec![self.clone()]),
            Route::Cluster(cluster) => {
                cluster.refresh_now().await?;
                let masters = cluster.masters().await?;
                Ok(masters.into_iter().map(|master| Self(Route::Server(master))).collect())
            }
        }
    }

    /// What the server is called that has a key, as far as is known: one that has it not says so.
    pub(crate) fn known_name(&self, key: &str) -> Arc<str> {
        match &self.0 {
            Route::Server(server) => Arc::clone(server.name()),
            Route::Sentinel(master) => master.known_name(),
            Route::Cluster(cluster) => cluster
                .known_master(slot(key.as_bytes()))
                .unwrap_or_else(|| cluster.seed().get_connection_info().addr().to_string().into()),
        }
    }

    /// What the server is called that has a key.
    pub(crate) async fn name(&self, key: &str) -> RedisResult<Arc<str>> {
        match &self.0 {
            Route::Server(server) => Ok(Arc::clone(server.name())),
            Route::Sentinel(master) => master.name().await,
            Route::Cluster(cluster) => cluster.master(slot(key.as_bytes())).await,
        }
    }

    /// How to connect to the server that is called so.
    fn client_of(&self, name: &str) -> RedisResult<Client> {
        match &self.0 {
            Route::Server(server) => Ok(server.client().clone()),
            Route::Sentinel(master) => master.client(name),
            Route::Cluster(cluster) => cluster.client(name),
        }
    }

    /// Opens a connection to the server that is called so, with that protocol if one is given. Of
    /// sentinels it has to be the master.
    pub(crate) async fn connect_to(
        &self,
        name: &str,
        protocol: Option<ProtocolVersion>,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let mut client = self.client_of(name)?;
        if let Some(protocol) = protocol {
            let info = client.get_connection_info().clone();
            let settings = info.redis_settings().clone().set_protocol(protocol);
            client = Client::open(info.set_redis_settings(settings))?;
        }
        let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
        if let Route::Sentinel(_) = &self.0 {
            check_role(&mut connection).await?;
        }
        Ok(connection)
    }

    /// Opens a separate connection to the server that has a key; it is not replaced when it ends.
    pub async fn own(
        &self,
        key: &str,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let connection = self.connect_to(&self.name(key).await?, None, config).await;
        connection.inspect_err(|failure| self.seen(failure))
    }

    /// Fails if what was answered by the server of that name may not count any more: sentinels have
    /// named another master meanwhile.
    pub(crate) fn still(&self, name: &str) -> RedisResult<()> {
        match &self.0 {
            Route::Sentinel(master) => master.still(name),
            Route::Server(_) | Route::Cluster(_) => Ok(()),
        }
    }

    /// Learns from what a server answered on a connection of one's own.
    pub(crate) fn seen(&self, failure: &RedisError) {
        match &self.0 {
            Route::Server(_) => {}
            Route::Sentinel(master) => master.seen(failure),
            Route::Cluster(cluster) => cluster.seen(failure),
        }
    }

    /// Whether the server that has a key can become another one.
    pub(crate) fn has_homes(&self) -> bool {
        !matches!(self.0, Route::Server(_))
    }

    /// Resolves when the sentinels name another server than the one that is called so.
    pub(crate) async fn replaced(&self, name: &str) {
        match &self.0 {
            Route::Sentinel(master) => master.replaced(name).await,
            Route::Server(_) | Route::Cluster(_) => pending().await,
        }
    }

    /// Asks which server has which keys, unless that was done less than 200 ms ago.
    pub(crate) async fn refresh(&self) -> RedisResult<()> {
        match &self.0 {
            Route::Server(_) => Ok(()),
            Route::Sentinel(master) => master.refresh().await,
            Route::Cluster(cluster) => cluster.refresh().await,
        }
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let server = match &self.0 {
                Route::Server(server) => server,
                Route::Sentinel(master) => return master.command(command).await,
                Route::Cluster(cluster) => return cluster.send(command).await,
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
                Route::Server(server) => server,
                Route::Sentinel(master) => {
                    return master.send_together(pipeline, (offset, count)).await;
                }
                Route::Cluster(cluster) => {
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
            Route::Server(server) => server.client().get_connection_info().redis_settings().db(),
            Route::Sentinel(master) => master.info().redis_settings().db(),
            Route::Cluster(_) => 0,
        }
    }
}
