//! The connections to the masters of a Redis Cluster.
//!
//! How it works: each command goes to the master that has the slot of its first key, on that node's
//! own connection (see `reconnecting`). A map says which master has which slot. It is asked for
//! when a slot's master is unknown, when a node redirects (`MOVED`), and when a node does not
//! answer. Then all known nodes are asked at once, and the first answer counts; if none answers,
//! the nodes of the address are asked as well. Commands have the map asked for at most once per
//! [`REFRESH_INTERVAL`]; `Cluster::masters` asks for it each time. That time doubles with each
//! unchanged map, up to [`MAX_REFRESH_INTERVAL`], so commands that fail for another reason cost
//! little. A redirection is followed at once. A slot that is being moved (`ASK`) is asked for at
//! its new node. If the keys of a script are on two nodes (`TRYAGAIN`), or the cluster is electing
//! (`CLUSTERDOWN`), the command is sent again for [`RETRY_TIMEOUT`].
//!
//! A command is sent again only if the node said that it was not carried out. The cluster client of
//! redis-rs also repeats commands after a time-out, up to 16 times. Such a command may have been
//! carried out: an inner release could count twice.
//!
//! Bounds: [`MAX_REDIRECTIONS`] per command; one connection per node that is or was just in use.
//! Source: the Redis Cluster specification. Tests: `tests/cluster`.

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

use super::reconnecting::ReconnectingConnection;
use super::slots::{self, SLOT_COUNT, SlotRange};

/// How often the map is asked for at most,
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);
/// and after it was the same again and again.
const MAX_REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// How often a command is sent on at most.
const MAX_REDIRECTIONS: u32 = 16;
/// For how long a command is sent again that a node cannot carry out just now.
const RETRY_TIMEOUT: Duration = Duration::from_millis(500);
/// The pause before that.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Cluster {
    seeds: Vec<Client>,
    config: ConnectionManagerConfig,
    map: Mutex<SlotMap>,
    /// Locked while the map is asked for.
    refreshed: tokio::sync::Mutex<RefreshSchedule>,
}

/// When the map may be asked for again.
struct RefreshSchedule {
    at: Option<Instant>,
    pause: Duration,
}

impl RefreshSchedule {
    fn is_recent(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() < self.pause)
    }

    fn now(&mut self, has_changed: bool) {
        let longer = (self.pause * 2).min(MAX_REFRESH_INTERVAL);
        self.pause = if has_changed { REFRESH_INTERVAL } else { longer };
        self.at = Some(Instant::now());
    }
}

struct SlotMap {
    masters: Vec<Option<Arc<str>>>,
    nodes: HashMap<Arc<str>, ReconnectingConnection>,
}

impl Cluster {
    /// Sends nothing yet.
    pub(super) fn new(seeds: Vec<Client>, config: ConnectionManagerConfig) -> Arc<Self> {
        let map = SlotMap { masters: vec![None; SLOT_COUNT.into()], nodes: HashMap::new() };
        let refreshed =
            tokio::sync::Mutex::new(RefreshSchedule { at: None, pause: REFRESH_INTERVAL });
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

    /// Sends a command to the master that has its key. A command without a key goes to all masters:
    /// the first answer is returned when all have answered.
    pub(super) async fn send(self: &Arc<Self>, command: &Cmd) -> RedisResult<Value> {
        let Some(slot) = slots::slot_of(command) else {
            return self.send_to_all(command).await;
        };
        let (mut node, mut asking) = (self.master(slot).await?, false);
        let deadline = Instant::now() + RETRY_TIMEOUT;
        for _ in 0..MAX_REDIRECTIONS {
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
                    sleep(RETRY_PAUSE).await;
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

    /// Notes what a node answered on another connection. If the answer shows that the map is wrong,
    /// the next command refreshes it.
    pub(super) fn seen(self: &Arc<Self>, failure: &RedisError) {
        if self.moved(failure, "").is_some() || failure.is_io_error() {
            self.refresh_soon();
        }
    }

    /// All masters there are, as far as is known.
    pub(super) async fn masters(&self) -> RedisResult<Vec<ReconnectingConnection>> {
        if self.map().masters.iter().all(Option::is_none) {
            self.refresh().await?;
        }
        let mut masters: Vec<_> = self.map().masters.iter().flatten().cloned().collect();
        masters.sort();
        masters.dedup();
        masters.iter().map(|master| self.node(master)).collect()
    }

    /// A failure counts as one of a command with a key: a process may send nothing but these.
    async fn send_to_all(self: &Arc<Self>, command: &Cmd) -> RedisResult<Value> {
        let masters = self.masters().await?;
        let answers = masters
            .iter()
            .map(|master| async move { master.command(command).await?.extract_error() });
        let answers = try_join_all(answers).await.inspect_err(|failure| self.seen(failure))?;
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

    fn node(&self, address: &str) -> RedisResult<ReconnectingConnection> {
        if let Some(node) = self.map().nodes.get(address) {
            return Ok(node.clone());
        }
        let node =
            ReconnectingConnection::connect_lazily(self.client(address)?, self.config.clone())?;
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
            // The next command sees the outcome.
            tokio::spawn(async move { cluster.refresh().await });
        }
    }

    /// Asks for the map, unless that was done less than [`RefreshSchedule::pause`] ago.
    pub(super) async fn refresh(&self) -> RedisResult<()> {
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_recent() { Ok(()) } else { self.refresh_locked(&mut refreshed).await }
    }

    /// Asks for the map, however recent it is.
    pub(super) async fn refresh_now(&self) -> RedisResult<()> {
        self.refresh_locked(&mut *self.refreshed.lock().await).await
    }

    async fn refresh_locked(&self, refreshed: &mut RefreshSchedule) -> RedisResult<()> {
        let known: Vec<_> = self.map().nodes.values().cloned().collect();
        let ranges = match first_answer(&known).await {
            Ok(ranges) => Ok(ranges),
            Err(_) => first_answer(&self.unknown_seeds()?).await,
        };
        let has_changed = ranges.as_ref().is_ok_and(|ranges| self.learn(ranges));
        // Noted without an answer too: callers that wait for the mutex here need not ask again.
        refreshed.now(has_changed);
        ranges.map(drop)
    }

    /// Nodes that the address names and the map does not.
    fn unknown_seeds(&self) -> RedisResult<Vec<ReconnectingConnection>> {
        let seeds = self.seeds.iter().filter(|seed| {
            let address = seed.get_connection_info().addr().to_string();
            !self.map().nodes.contains_key(address.as_str())
        });
        seeds
            .map(|seed| ReconnectingConnection::connect_lazily(seed.clone(), self.config.clone()))
            .collect()
    }

    /// Whether that is news.
    fn learn(&self, ranges: &[SlotRange]) -> bool {
        let mut masters = vec![None; SLOT_COUNT.into()];
        for SlotRange { first, last, master } in ranges {
            masters[usize::from(*first)..=usize::from(*last)].fill(Some(Arc::clone(master)));
        }
        let mut map = self.map();
        let has_changed = map.masters != masters;
        map.masters = masters;
        map.nodes.retain(|node, _| ranges.iter().any(|range| range.master == *node));
        has_changed
    }

    fn map(&self) -> MutexGuard<'_, SlotMap> {
        // Each change is made of steps that do not panic.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the first of them says that says anything.
async fn first_answer(nodes: &[ReconnectingConnection]) -> RedisResult<Vec<SlotRange>> {
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

async fn ask(node: &ReconnectingConnection) -> RedisResult<Vec<SlotRange>> {
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
