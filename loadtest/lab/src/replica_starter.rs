//! The start of a deployment's replicas, each with the proxies on which a fault happens.

use std::net::SocketAddr;
use std::sync::Arc;

use loadtest_measure::error::{Error, Result};
use testbed::{Proxy, Replica, ReplicaSpec};

use crate::cluster::{Cluster, RedisServers, blocking};
use crate::deployment::{DeploymentSpec, WORKER_THREADS};
use crate::requirements::Link;
use crate::sale_database::SaleDatabase;

/// The proxies on the links of one replica.
#[derive(Debug, Default)]
pub(super) struct ReplicaProxies {
    /// To each of its Redis servers, the main one first.
    pub(super) redis: Vec<Proxy>,
    pub(super) database: Vec<Proxy>,
    /// From HAProxy.
    pub(super) front: Vec<Proxy>,
    pub(super) zookeeper: Vec<Proxy>,
}

/// What replicas are started from.
pub(super) struct ReplicaStarter<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) spec: &'a DeploymentSpec,
    pub(super) redis: &'a RedisServers,
    pub(super) database: &'a SaleDatabase,
    pub(super) zookeeper: Option<SocketAddr>,
    pub(super) secrets: &'a [(String, String)],
}

impl ReplicaStarter<'_> {
    /// Starts all replicas at the same time, each with its proxies.
    pub(super) async fn start_replicas(&self) -> Result<(Vec<Arc<Replica>>, Vec<ReplicaProxies>)> {
        let (mut starting, mut all) = (Vec::new(), Vec::new());
        for number in 1..=self.spec.replicas {
            let mut proxies = self.proxies().await?;
            let spec = self.replica(number, &proxies)?;
            let has_front = self.spec.requirements.has(Link::Replica);
            let bed = self.cluster.bed.clone();
            starting.push(tokio::spawn(blocking(move || {
                let replica = bed.replica(spec)?;
                if has_front {
                    proxies.front.push(Proxy::before(replica.addr())?);
                }
                Ok((replica, proxies))
            })));
        }
        let mut replicas = Vec::with_capacity(starting.len());
        for started in starting {
            let (replica, proxies) =
                started.await.map_err(|error| Error::Setup(error.to_string()))??;
            replicas.push(Arc::new(replica));
            all.push(proxies);
        }
        Ok((replicas, all))
    }

    async fn proxies(&self) -> Result<ReplicaProxies> {
        let Self { cluster, spec, redis, zookeeper, .. } = self;
        let servers = [
            (Link::Redis, redis.all().map(|redis| redis.addr()).collect()),
            (Link::Database, vec![cluster.database.addr()]),
            (Link::Zookeeper, zookeeper.iter().copied().collect()),
        ];
        let [redis, database, zookeeper] =
            servers.map(
                |(link, servers): (_, Vec<SocketAddr>)| {
                    if spec.requirements.has(link) { servers } else { Vec::new() }
                },
            );
        blocking(move || {
            let before = |servers: Vec<_>| servers.into_iter().map(Proxy::before).collect();
            let (redis, database, zookeeper): (testbed::Result<_>, testbed::Result<_>, _) =
                (before(redis), before(database), before(zookeeper));
            let front = Vec::new();
            Ok(ReplicaProxies { redis: redis?, database: database?, front, zookeeper: zookeeper? })
        })
        .await
    }

    fn replica(&self, number: u16, proxies: &ReplicaProxies) -> Result<ReplicaSpec> {
        let (name, fleet) = (format!("r{number}"), self.spec.fleet);
        let own = fleet.program(number, &self.cluster.program)?;
        let mut replica = ReplicaSpec::new(&name, own.program)
            .args(own.args)
            .args(["--bind", "127.0.0.1:0", "--replica-id", &name])
            .args(fleet.flags(number, &self.spec.flags));
        for (key, value) in self.secrets {
            replica = replica.env(key, value);
        }
        if let Some(threads) = self.spec.worker_threads {
            replica = replica.env(WORKER_THREADS, threads.to_string());
        }
        let database = format!("sale_{}", self.spec.number);
        if let Some(url) = self.database.url_of(number, &database) {
            replica = replica.env("DATABASE_URL", url);
        }
        if let Some(proxy) = proxies.database.first() {
            let server = &self.cluster.database;
            let url = server.url(&database);
            replica = replica.env("DATABASE_URL", proxy.instead_of(server.addr(), &url));
        }
        if let Some(proxy) = proxies.zookeeper.first() {
            replica = replica.env("ZOOKEEPER_URL", proxy.addr().to_string());
        }
        for (key, value) in self.redis.urls(self.spec.number, &proxies.redis) {
            replica = replica.env(key, value);
        }
        Ok(replica)
    }
}
