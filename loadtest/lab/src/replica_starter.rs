//! The start of a deployment's replicas, each with the proxies on which a fault happens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use loadtest_measure::error::{Error, Result};
use testbed::{Bed, PacketLink, Proxy, Replica, ReplicaSpec};

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
    /// Between these proxies and their servers, where packets can be lost.
    pub(super) packet_links: Vec<Arc<PacketLink>>,
}

/// How packets can be lost on the links of a replica.
#[derive(Clone)]
struct PacketLoss {
    /// This program, which is also that of a link.
    program: PathBuf,
    /// The seed of the first link; that of each further one is one more.
    seed: u64,
}

impl ReplicaProxies {
    /// A proxy before that server, with a link between the two if packets can be lost.
    fn start_proxy(
        &mut self,
        server: SocketAddr,
        bed: &Bed,
        loss: Option<&PacketLoss>,
    ) -> testbed::Result<Proxy> {
        let Some(PacketLoss { program, seed }) = loss else { return Proxy::before(server) };
        let seed = seed.wrapping_add(self.packet_links.len() as u64);
        let link = bed.packet_link(program, server, seed)?;
        let proxy = Proxy::before(link.addr())?;
        self.packet_links.push(Arc::new(link));
        Ok(proxy)
    }
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
            let loss = self.packet_loss(number)?;
            let mut proxies = self.proxies(loss.clone()).await?;
            let spec = self.replica(number, &proxies)?;
            let has_front = self.spec.requirements.has(Link::Replica);
            let bed = self.cluster.bed.clone();
            starting.push(tokio::spawn(blocking(move || {
                let replica = bed.replica(spec)?;
                if has_front {
                    let front = proxies.start_proxy(replica.addr(), &bed, loss.as_ref())?;
                    proxies.front.push(front);
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

    /// How packets can be lost on the links of that replica, if a fault needs that.
    fn packet_loss(&self, number: u16) -> Result<Option<PacketLoss>> {
        let lossy = self.spec.requirements.lossy_replica;
        let Some(lossy) = lossy.filter(|lossy| lossy.index + 1 == usize::from(number)) else {
            return Ok(None);
        };
        let program = std::env::current_exe();
        let program = program.map_err(|error| Error::Setup(format!("no own program: {error}")))?;
        Ok(Some(PacketLoss { program, seed: lossy.seed }))
    }

    async fn proxies(&self, loss: Option<PacketLoss>) -> Result<ReplicaProxies> {
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
        let bed = cluster.bed.clone();
        blocking(move || {
            let mut proxies = ReplicaProxies::default();
            let mut start_proxies = |servers: Vec<SocketAddr>| {
                let servers = servers.into_iter();
                let started =
                    servers.map(|server| proxies.start_proxy(server, &bed, loss.as_ref()));
                started.collect::<testbed::Result<Vec<_>>>()
            };
            let (redis, database, zookeeper) =
                (start_proxies(redis)?, start_proxies(database)?, start_proxies(zookeeper)?);
            Ok(ReplicaProxies { redis, database, zookeeper, ..proxies })
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
