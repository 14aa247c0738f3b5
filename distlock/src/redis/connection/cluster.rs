//! The connections to the masters of a Redis Cluster.
//!
//! How it works: each command goes to the master that has the slot of its first key, on a
//! connection of that node's own (see `steady`). Which master that is stands in a map, which is
//! asked for when a slot's master is not known, when a node redirects (`MOVED`), and when one does
//! not answer: all known nodes are asked at once and the first to answer is believed; those that
//! the address names are asked as well if none of them answers. That happens at most once per
//! [`REFRESH_EVERY`], and twice as rarely each time that nothing has changed, down to once per
//! [`REFRESH_RARELY`]: commands that fail for another reason cost no more than that. A redirection
//! is followed at once; a slot that is being moved (`ASK`) is asked for where it goes. While keys
//! of one script are in two places (`TRYAGAIN`), or the cluster is electing (`CLUSTERDOWN`), the
//! command is sent again for [`PATIENCE`].
//!
//! A command is sent again only if the node said that it has not carried it out. redis-rs' own
//! cluster client also sends it again after a time-out, up to 16 times, when it may have been
//! carried out: an inner release could count twice.
//!
//! Bounds: [`REDIRECTIONS`] per command; one connection per node that is or was just in use.
//! Source: the Redis Cluster specification. Tests: `tests/cluster.rs`, `tests/cluster_changes.rs`,
//! `tests/cluster_more.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{
    Client, Cmd, ConnectionAddr, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind,
    Value,
};
use tokio::time::{Instant, sleep};

use super::slots::{self, Range, SLOTS};
use super::steady::Steady;

/// How often the map is asked for at most,
const REFRESH_EVERY: Duration = Duration::from_millis(200);
/// and after it was the same again and again.
const REFRESH_RARELY: Duration = Duration::from_secs(1);
/// How often a command is sent on at most.
const REDIRECTIONS: u32 = 16;
/// For how long a command is sent again that a node cannot carry out just now.
const PATIENCE: Duration = Duration::from_millis(500);
/// The pause before that.
const AGAIN: Duration = Duration::from_millis(50);

pub(crate) struct Cluster {
    seeds: Vec<Client>,
    config: ConnectionManagerConfig,
    map: Mutex<Map>,
    /// Locked while the map is asked for.
    refreshed: tokio::sync::Mutex<Refreshed>,
}

/// When the map may be asked for again.
struct Refreshed {
    at: Option<Instant>,
    pause: Duration,
}

impl Refreshed {
    fn is_recent(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() < self.pause)
    }

    fn now(&mut self, has_changed: bool) {
        let longer = (self.pause * 2).min(REFRESH_RARELY);
        self.pause = if has_changed { REFRESH_EVERY } else { longer };
        self.at = Some(Instant::now());
    }
}

struct Map {
    masters: Vec<Option<Arc<str>>>,
    nodes: HashMap<Arc<str>, Steady>,
}

impl Cluster {
    /// Asks nobody yet.
    pub(super) fn new(seeds: Vec<Client>, config: ConnectionManagerConfig) -> Arc<Self> {
        let map = Map { masters: vec![None; SLOTS.into()], nodes: HashMap::new() };
        let refreshed = tokio::sync::Mutex::new(Refreshed { at: None, pause: REFRESH_EVERY });
        Arc::new(Self { seeds, config, map: Mutex::new(map), refreshed })
    }

    pub(super) fn seed(&self) -> &Client {
        &self.seeds[0]
    }

    /// The master of a slot, as far as is known.
    pub(super) fn known_master(&self, slot: u16) -> Option<Arc<str>> {
        self.map().masters[usize::from(slot)].clone()
    }

    /// The master of a slot.
    pub(super) async fn master(&self, slot: u16) -> RedisResult<Arc<str>> {
        if let Some(master) = self.known_master(slot) {
            return Ok(master);
        }
        self.refresh().await?;
        self.known_master(slot).ok_or_else(|| error("no master of the cluster has the slot"))
    }

    /// How to connect to a node.
    pub(super) fn client(&self, node: &str) -> RedisResult<Client> {
        let (host_there, port_there) = node
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse().ok()?)))
            .ok_or_else(|| error("a node's address is no host and port"))?;
        let info = self.seed().get_connection_info().clone();
        let mut address = info.addr().clone();
        if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } =
            &mut address
        {
            (*host, *port) = (host_there.to_owned(), port_there);
        }
        Client::open(info.set_addr(address))
    }

    /// Sends a command to the master that has its key, or to all masters if it has none: then the
    /// first one's answer is that of all, if all have answered.
    pub(super) async fn send(self: &Arc<Self>, command: &Cmd) -> RedisResult<Value> {
        let Some(slot) = slots::slot_of(command) else {
            return self.send_to_all(command).await;
        };
        let (mut node, mut asking) = (self.master(slot).await?, false);
        let deadline = Instant::now() + PATIENCE;
        for _ in 0..REDIRECTIONS {
            let failure = match self.send_to(&node, command, asking).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            asking = false;
            match failure.kind() {
                ErrorKind::Server(ServerErrorKind::Moved) => {
                    node = self.moved(&failure, &node).ok_or(failure)?;
                    self.refresh_soon();
                }
                ErrorKind::Server(ServerErrorKind::Ask) => {
                    node = target(&failure, &node).ok_or(failure)?;
                    asking = true;
                }
                ErrorKind::Server(
                    ServerErrorKind::TryAgain
                    | ServerErrorKind::ClusterDown
                    | ServerErrorKind::ReadOnly
                    | ServerErrorKind::MasterDown,
                ) if Instant::now() < deadline => {
                    sleep(AGAIN).await;
                    self.refresh().await?;
                    node = self.master(slot).await?;
                }
                _ => {
                    self.seen(&failure);
                    return Err(failure);
                }
            }
        }
        Err(error("too many redirections"))
    }

    /// Sends commands to the master that has the first key of them. They are not sent on.
    pub(super) async fn send_together(
        self: &Arc<Self>,
        pipeline: &Pipeline,
        (offset, count): (usize, usize),
    ) -> RedisResult<Vec<Value>> {
        let slot = pipeline.cmd_iter().find_map(slots::slot_of);
        let slot = slot.ok_or_else(|| error("none of the commands has a key"))?;
        let node = self.node(&self.master(slot).await?)?;
        let send = |mut manager: ConnectionManager| async move {
            manager.send_packed_commands(pipeline, offset, count).await
        };
        let answers = node.send(send).await;
        match &answers {
            Ok(answers) => answers.iter().for_each(|answer| {
                if let Value::ServerError(error) = answer {
                    self.seen(&error.clone().into());
                }
            }),
            Err(failure) => self.seen(failure),
        }
        answers
    }

    /// What a node answered on somebody else's connection, or did not: if it shows that the map is
    /// wrong the next command finds another.
    pub(super) fn seen(self: &Arc<Self>, failure: &RedisError) {
        if self.moved(failure, "").is_some() || failure.is_io_error() {
            self.refresh_soon();
        }
    }

    /// All masters there are, as far as is known.
    pub(super) async fn masters(&self) -> RedisResult<Vec<Steady>> {
        if self.map().masters.iter().all(Option::is_none) {
            self.refresh().await?;
        }
        let mut masters: Vec<_> = self.map().masters.iter().flatten().cloned().collect();
        masters.sort();
        masters.dedup();
        masters.iter().map(|master| self.node(master)).collect()
    }

    async fn send_to_all(&self, command: &Cmd) -> RedisResult<Value> {
        let masters = self.masters().await?;
        let answers = masters
            .iter()
            .map(|master| async move { master.command(command).await?.extract_error() });
        let answers = try_join_all(answers).await?;
        answers.into_iter().next().ok_or_else(|| error("no master of the cluster is known"))
    }

    async fn send_to(&self, node: &str, command: &Cmd, asking: bool) -> RedisResult<Value> {
        let node = self.node(node)?;
        if !asking {
            return node.command(command).await?.extract_error();
        }
        let send = |mut manager: ConnectionManager| async move {
            let mut both = redis::pipe();
            both.cmd("ASKING").add_command(command.clone());
            let answers = manager.send_packed_commands(&both, 0, 2).await?;
            answers.into_iter().next_back().unwrap_or(Value::Nil).extract_error()
        };
        node.send(send).await
    }

    fn node(&self, address: &str) -> RedisResult<Steady> {
        if let Some(node) = self.map().nodes.get(address) {
            return Ok(node.clone());
        }
        let node = Steady::later(self.client(address)?, self.config.clone())?;
        Ok(self.map().nodes.entry(address.into()).or_insert(node).clone())
    }

    /// Remembers where a node says that a slot is; that place if it said so.
    fn moved(&self, failure: &RedisError, by: &str) -> Option<Arc<str>> {
        if failure.kind() != ErrorKind::Server(ServerErrorKind::Moved) {
            return None;
        }
        let (_, slot) = failure.redirect_node()?;
        let node = target(failure, by)?;
        *self.map().masters.get_mut(usize::from(slot))? = Some(Arc::clone(&node));
        Some(node)
    }

    fn refresh_soon(self: &Arc<Self>) {
        let cluster = Arc::clone(self);
        if self.refreshed.try_lock().is_ok_and(|refreshed| !refreshed.is_recent()) {
            // The outcome is seen by whoever needs it.
            tokio::spawn(async move { cluster.refresh().await });
        }
    }

    /// Asks for the map, unless somebody has just done so.
    pub(super) async fn refresh(&self) -> RedisResult<()> {
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_recent() {
            return Ok(());
        }
        let known: Vec<_> = self.map().nodes.values().cloned().collect();
        let ranges = match first_answer(&known).await {
            Ok(ranges) => Ok(ranges),
            Err(_) => first_answer(&self.unknown_seeds()?).await,
        };
        let has_changed = ranges.as_ref().is_ok_and(|ranges| self.learn(ranges));
        // Also if nobody answers: those who wait for their turn here need not ask again.
        refreshed.now(has_changed);
        ranges.map(drop)
    }

    /// Nodes that the address names and the map does not.
    fn unknown_seeds(&self) -> RedisResult<Vec<Steady>> {
        let seeds = self.seeds.iter().filter(|seed| {
            let address = seed.get_connection_info().addr().to_string();
            !self.map().nodes.contains_key(address.as_str())
        });
        seeds.map(|seed| Steady::later(seed.clone(), self.config.clone())).collect()
    }

    /// Whether that is news.
    fn learn(&self, ranges: &[Range]) -> bool {
        let mut masters = vec![None; SLOTS.into()];
        for Range { first, last, master } in ranges {
            masters[usize::from(*first)..=usize::from(*last)].fill(Some(Arc::clone(master)));
        }
        let mut map = self.map();
        let has_changed = map.masters != masters;
        map.masters = masters;
        map.nodes.retain(|node, _| ranges.iter().any(|range| range.master == *node));
        has_changed
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        // Each change is made of steps that do not panic.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the first of them says that says anything.
async fn first_answer(nodes: &[Steady]) -> RedisResult<Vec<Range>> {
    let mut answers: FuturesUnordered<_> = nodes.iter().map(ask).collect();
    let mut failure = error("no node of the cluster is known");
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(ranges) => return Ok(ranges),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn ask(node: &Steady) -> RedisResult<Vec<Range>> {
    let send = |mut manager: ConnectionManager| async move {
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        manager.send_packed_command(&slots).await?.extract_error()
    };
    let answer = node.send(send).await?;
    let host = match node.client().get_connection_info().addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.as_str(),
        _ => "",
    };
    match slots::ranges(&answer, host) {
        Some(ranges) if !ranges.is_empty() => Ok(ranges),
        _ => Err(error("a node of the cluster knows no slots")),
    }
}

/// Where a redirection points; the host may be left out if it is the same.
fn target(failure: &RedisError, by: &str) -> Option<Arc<str>> {
    let (address, _) = failure.redirect_node()?;
    match address.strip_prefix(':') {
        Some(port) => Some(format!("{}:{port}", by.rsplit_once(':')?.0).into()),
        None => Some(address.into()),
    }
}

fn error(what: &'static str) -> RedisError {
    RedisError::from((ErrorKind::ClusterConnectionNotFound, what))
}
