//! A private etcd cluster whose members reach one another by links that can be cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::bed_state::BedState;
use crate::error::Result;
use crate::etcd::{Etcd, EtcdMembership, EtcdOptions, EtcdPlan};
use crate::forward_proxy::ForwardProxy;
use crate::ports;
use crate::process::start_on_free_port;
use crate::proxy::{Direction, Proxy};

/// One may fail, and the other two are still a majority.
const MEMBERS: usize = 3;
/// How long an election may take.
const ELECTED_WITHIN: Duration = Duration::from_mins(1);

/// Three running etcd servers that are one cluster.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Etcd>,
    links: Vec<PeerLink>,
    _forward_proxies: Vec<ForwardProxy>,
}

/// A way from one member to another.
#[derive(Debug)]
struct PeerLink {
    ends: [usize; 2],
    proxy: Proxy,
}

impl EtcdCluster {
    pub(crate) fn start(bed: &Arc<BedState>, options: EtcdOptions) -> Result<Self> {
        let plan = EtcdPlan::new(bed, options)?;
        start_on_free_port(|| Self::start_once(&plan))
    }

    fn start_once(plan: &EtcdPlan<'_>) -> Result<Self> {
        let listens: Vec<_> = (0..MEMBERS).map(|_| ports::free_address()).collect::<Result<_>>()?;
        let clients: Vec<_> = (0..MEMBERS).map(|_| ports::free_address()).collect::<Result<_>>()?;
        let all: Vec<_> =
            (0..MEMBERS).map(|to| format!("member-{to}=http://{}", alias(to))).collect();
        let (mut links, mut forward_proxies, mut memberships) = (vec![], vec![], vec![]);
        for from in 0..MEMBERS {
            let mut ways = Vec::new();
            for to in (0..MEMBERS).filter(|to| *to != from) {
                let proxy = Proxy::before(listens[to])?;
                ways.push((alias(to), proxy.addr()));
                links.push(PeerLink { ends: [from, to], proxy });
            }
            let forward_proxy = ForwardProxy::start(ways)?;
            memberships.push(EtcdMembership {
                name: format!("member-{from}"),
                listens: listens[from],
                url: format!("http://{}", alias(from)),
                all: all.join(","),
                http_proxy: Some(forward_proxy.address),
            });
            forward_proxies.push(forward_proxy);
        }
        // None is ready before a majority runs.
        let members = thread::scope(|scope| {
            let places: Vec<(&SocketAddr, &EtcdMembership)> =
                clients.iter().zip(&memberships).collect();
            let starts =
                places.into_iter().map(|(at, place)| scope.spawn(|| plan.start(*at, place)));
            let starts: Vec<_> = starts.collect();
            let ends = starts.into_iter().map(|start| start.join().expect("a start never panics"));
            ends.collect::<Result<Vec<_>>>()
        })?;
        Ok(Self { members, links, _forward_proxies: forward_proxies })
    }

    /// `127.0.0.1:port,127.0.0.1:port,127.0.0.1:port`, as clients want it.
    #[must_use]
    pub fn endpoints(&self) -> String {
        self.members.iter().map(Etcd::endpoint).collect::<Vec<_>>().join(",")
    }

    /// The three servers.
    #[must_use]
    pub fn members(&self) -> &[Etcd] {
        &self.members
    }

    /// Which member leads the others. Waits for the end of an election.
    ///
    /// # Errors
    /// If there is no leader within a minute.
    pub fn leader(&self) -> Result<usize> {
        let deadline = Instant::now() + ELECTED_WITHIN;
        loop {
            match self.members.iter().position(Etcd::leads) {
                Some(leader) => return Ok(leader),
                None if Instant::now() < deadline => sleep(Duration::from_millis(20)),
                None => {
                    let reason = format!("no leader within {ELECTED_WITHIN:?}");
                    return Err(self.members[0].failed(reason));
                }
            }
        }
    }

    /// Cuts a member off from the two others, and each sees the end of the connections. Clients
    /// still reach it.
    pub fn cut_off(&self, member: usize) {
        self.links_of(member).for_each(Proxy::start_outage);
    }

    /// Lets a member that was cut off reach the others again.
    pub fn join_again(&self, member: usize) {
        self.links_of(member).for_each(Proxy::end_outage);
    }

    /// Swallows all that a member and the others say to each other.
    pub fn silence(&self, member: usize) {
        for link in self.links_of(member) {
            link.set_swallowing(Direction::ToServer, true);
            link.set_swallowing(Direction::ToClient, true);
        }
    }

    fn links_of(&self, member: usize) -> impl Iterator<Item = &Proxy> {
        self.links.iter().filter(move |link| link.ends.contains(&member)).map(|link| &link.proxy)
    }
}

/// The address by which members know one another: of a network for documentation. To addresses of
/// its own machine a member would go without the proxy.
fn alias(member: usize) -> String {
    format!("192.0.2.{}:2380", member + 1)
}
