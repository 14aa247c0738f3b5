//! A private Redis Cluster.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bed_state::BedState;
use crate::certificates::Certificates;
use crate::error::Result;
use crate::redis::{Redis, RedisCredentials, RedisOptions, secret};

/// Slots of a cluster.
const SLOTS: u16 = 16_384;
/// How long the nodes have to agree.
const AGREE_WITHIN: Duration = Duration::from_secs(30);

/// A running Redis Cluster: masters that have all slots, and their replicas. All have the same
/// password.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Arc<Redis>>,
    masters: usize,
    password: String,
}

impl RedisCluster {
    pub(crate) fn start(bed: &Arc<BedState>, masters: u16, replicas_each: u16) -> Result<Self> {
        Self::start_with(bed, masters, replicas_each, None)
    }

    /// Masters only, which speak TLS with one another, and with clients on ports of their own.
    pub(crate) fn start_with_tls(bed: &Arc<BedState>, masters: u16) -> Result<Self> {
        let certificates = Certificates::create(bed, &bed.unique_name("cluster"))?;
        Self::start_with(bed, masters, 0, Some(certificates))
    }

    fn start_with(
        bed: &Arc<BedState>,
        masters: u16,
        replicas_each: u16,
        certificates: Option<Certificates>,
    ) -> Result<Self> {
        let (count, password) = (masters * (1 + replicas_each), secret());
        let tls = certificates.is_some();
        let options = RedisOptions { cluster: true, tls, ..RedisOptions::default() };
        let alike = RedisCredentials { password: password.clone(), certificates };
        let nodes = Redis::start_alike(bed, count.into(), options, Some(alike))?;
        let nodes = nodes.into_iter().map(Arc::new).collect();
        let cluster = Self { nodes, masters: masters.into(), password };
        cluster.join()?;
        cluster.share_slots(masters)?;
        cluster.agree(Self::is_whole)?;
        for (at, replica) in cluster.nodes.iter().enumerate().skip(cluster.masters) {
            let master = &cluster.nodes[at % cluster.masters];
            replica.command(&["CLUSTER", "REPLICATE", &id(master)?])?;
        }
        cluster.agree(Self::is_replicated)?;
        Ok(cluster)
    }

    /// `redis+cluster://:password@127.0.0.1:port,127.0.0.1:port`, of those that were made masters.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.masters().iter().map(|node| node.addr().to_string()).collect();
        format!("redis+cluster://:{}@{}", self.password, hosts.join(","))
    }

    /// `rediss+cluster://:password@127.0.0.1:port,127.0.0.1:port`, if they speak TLS.
    #[must_use]
    pub fn tls_url(&self) -> Option<String> {
        let hosts: Option<Vec<_>> =
            self.masters().iter().map(|node| Some(node.tls_addr()?.to_string())).collect();
        Some(format!("rediss+cluster://:{}@{}", self.password, hosts?.join(",")))
    }

    /// Those that were made masters.
    #[must_use]
    pub fn masters(&self) -> &[Arc<Redis>] {
        &self.nodes[..self.masters]
    }

    /// Those that were made replicas: that of the first master, of the second and so on; and then
    /// their second ones.
    #[must_use]
    pub fn replicas(&self) -> &[Arc<Redis>] {
        &self.nodes[self.masters..]
    }

    /// The slot of a key.
    ///
    /// # Errors
    /// If the first node does not answer.
    pub fn slot(&self, key: &str) -> Result<u16> {
        let node = &self.nodes[0];
        let slot = node.command(&["CLUSTER", "KEYSLOT", key])?;
        slot.parse().map_err(|_| node.failed(format!("`{slot}` is no slot")))
    }

    /// Which of the masters was given the slot of a key at the start.
    ///
    /// # Errors
    /// As [`RedisCluster::slot`].
    pub fn first_home(&self, key: &str) -> Result<usize> {
        Ok(usize::from(self.slot(key)?) * self.masters / usize::from(SLOTS))
    }

    /// Begins to move a slot from one master to another: keys that are not there any more are
    /// asked for at the other one.
    ///
    /// # Errors
    /// If one of them refuses it or does not answer.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) -> Result<()> {
        let (slot, from, to) = (slot.to_string(), &self.nodes[from], &self.nodes[to]);
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)?])?;
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)?]).map(drop)
    }

    /// Moves the keys of a slot, and then the slot itself. Returns the keys.
    ///
    /// # Errors
    /// As [`RedisCluster::begin_move`].
    pub fn finish_move(&self, slot: u16, from: usize, to: usize) -> Result<Vec<String>> {
        let (slot, from, to) = (slot.to_string(), &self.nodes[from], &self.nodes[to]);
        let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"])?;
        let (host, port) = (to.addr().ip().to_string(), to.addr().port().to_string());
        let keys: Vec<_> = keys.lines().filter(|key| !key.is_empty()).collect();
        if !keys.is_empty() {
            let migrate =
                ["MIGRATE", &host, &port, "", "0", "5000", "AUTH", &self.password, "KEYS"];
            from.command(&[&migrate, keys.as_slice()].concat())?;
        }
        let target = id(to)?;
        let is_other = |node: &&Arc<Redis>| node.addr() != to.addr() && node.addr() != from.addr();
        for node in [to, from].into_iter().chain(self.masters().iter().filter(is_other)) {
            node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target])?;
        }
        Ok(keys.into_iter().map(str::to_owned).collect())
    }

    fn join(&self) -> Result<()> {
        let first = self.nodes[0].tls_addr().unwrap_or(self.nodes[0].addr());
        let (host, port) = (first.ip().to_string(), first.port());
        let bus = self.nodes[0].command(&["CONFIG", "GET", "cluster-port"])?;
        let bus = bus.lines().next_back().unwrap_or_default();
        for (at, node) in self.nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()])?;
            if at > 0 {
                node.command(&["CLUSTER", "MEET", &host, &port.to_string(), bus])?;
            }
        }
        self.agree(|cluster| {
            let all = format!("cluster_known_nodes:{}", cluster.nodes.len());
            cluster.all_say(&["CLUSTER", "INFO"], &all)
        })
    }

    fn share_slots(&self, masters: u16) -> Result<()> {
        let begin = |at: u16| (u32::from(SLOTS) * u32::from(at)).div_ceil(u32::from(masters));
        for (at, node) in (0..masters).zip(&self.nodes) {
            let (first, last) = (begin(at).to_string(), (begin(at + 1) - 1).to_string());
            node.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
        }
        Ok(())
    }

    /// Whether every node knows that all slots are served.
    ///
    /// # Errors
    /// If one of them does not answer.
    pub fn is_whole(&self) -> Result<bool> {
        Ok(self.all_say(&["CLUSTER", "INFO"], "cluster_state:ok")?
            && self.all_say(&["CLUSTER", "INFO"], "cluster_slots_ok:16384")?)
    }

    fn is_replicated(&self) -> Result<bool> {
        for replica in self.replicas() {
            if !replica.command(&["INFO", "replication"])?.contains("master_link_status:up") {
                return Ok(false);
            }
        }
        self.is_whole()
    }

    fn all_say(&self, command: &[&str], line: &str) -> Result<bool> {
        for node in &self.nodes {
            if !node.command(command)?.lines().any(|said| said.trim() == line) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn agree(&self, agreed: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + AGREE_WITHIN;
        while !agreed(self)? {
            if Instant::now() > deadline {
                return Err(self.nodes[0].failed(format!("no agreement within {AGREE_WITHIN:?}")));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

fn id(node: &Redis) -> Result<String> {
    node.command(&["CLUSTER", "MYID"])
}

impl Redis {
    /// Whether the server says in time that this is its role, `master` or `slave`. An election
    /// takes some seconds, on a busy machine up to half a minute.
    #[must_use]
    pub fn takes_role(&self, role: &str) -> bool {
        let deadline = Instant::now() + AGREE_WITHIN;
        loop {
            let says = self.command(&["ROLE"]).unwrap_or_default();
            if says.lines().next().is_some_and(|first| first.trim() == role) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            sleep(Duration::from_millis(20));
        }
    }
}
