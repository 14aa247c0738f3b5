//! A private `ZooKeeper` ensemble whose members reach one another by links that can be cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::bed_state::BedState;
use crate::error::Result;
use crate::ports;
use crate::process::start_on_free_port;
use crate::proxy::{Direction, Proxy};
use crate::zookeeper::{Membership, ZooKeeper, ZooKeeperOptions, ZooKeeperPlan};
use crate::zookeeper_introducer::Introducer;

/// One may fail, and the other two are still a majority.
const MEMBERS: usize = 3;
/// How long a new leader may take to listen. A follower that was refused tries again, and one whose
/// connection ends joins a new election, while the leader waits ten seconds for it.
const LISTENS_WITHIN: Duration = Duration::from_secs(2);
/// In ticks: how long a member may take to join its leader, and how long it may be silent.
const LIMITS: &str = "initLimit=50\nsyncLimit=10\n";
/// How long an election may take.
const ELECTED_WITHIN: Duration = Duration::from_mins(1);

/// Three running `ZooKeeper` servers that are one ensemble.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    members: Vec<ZooKeeper>,
    links: Vec<Link>,
    _introducers: Vec<Introducer>,
}

/// A way from one member to another.
#[derive(Debug)]
struct Link {
    ends: [usize; 2],
    proxy: Proxy,
}

/// Where a member listens.
struct Addresses {
    clients: SocketAddr,
    followers: SocketAddr,
    elections: SocketAddr,
}

impl ZooKeeperEnsemble {
    pub(crate) fn start(bed: &Arc<BedState>, options: ZooKeeperOptions) -> Result<Self> {
        let plan = ZooKeeperPlan::new(bed, options)?;
        start_on_free_port(|| Self::start_once(&plan))
    }

    fn start_once(plan: &ZooKeeperPlan<'_>) -> Result<Self> {
        let addresses: Vec<_> = (0..MEMBERS).map(|_| Addresses::draw()).collect::<Result<_>>()?;
        let mut ways = Ways::default();
        let memberships: Vec<_> = (0..MEMBERS)
            .map(|member| ways.membership(member, &addresses))
            .collect::<Result<_>>()?;
        // None is ready before a majority runs.
        let members = thread::scope(|scope| {
            let starts: Vec<_> = addresses
                .iter()
                .zip(&memberships)
                .map(|(at, membership)| scope.spawn(|| plan.start(at.clients, Some(membership))))
                .collect();
            let ends = starts.into_iter().map(|start| start.join().expect("a start never panics"));
            ends.collect::<Result<Vec<_>>>()
        })?;
        Ok(Self { members, links: ways.links, _introducers: ways.introducers })
    }

    /// `127.0.0.1:port,127.0.0.1:port,127.0.0.1:port`, as clients want it.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let members = self.members.iter().map(ZooKeeper::connect_string);
        members.collect::<Vec<_>>().join(",")
    }

    /// The three servers.
    #[must_use]
    pub fn members(&self) -> &[ZooKeeper] {
        &self.members
    }

    /// Which member leads the others. Waits for the end of an election.
    ///
    /// # Errors
    /// If there is no leader within a minute.
    pub fn leader(&self) -> Result<usize> {
        let deadline = Instant::now() + ELECTED_WITHIN;
        loop {
            let leads = |member: &ZooKeeper| {
                member.four_letter_word("srvr").is_ok_and(|says| says.contains("Mode: leader"))
            };
            match self.members.iter().position(leads) {
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

    /// Swallows all that a member and the others say to each other. Each takes the other for slow,
    /// as long as its limits allow it.
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

impl Addresses {
    fn draw() -> Result<Self> {
        Ok(Self {
            clients: ports::free_address()?,
            followers: ports::free_address()?,
            elections: ports::free_address()?,
        })
    }
}

/// How the members reach one another.
#[derive(Default)]
struct Ways {
    links: Vec<Link>,
    introducers: Vec<Introducer>,
}

impl Ways {
    /// What a member knows of all: itself by its own addresses, and the others by links.
    fn membership(&mut self, at: usize, all: &[Addresses]) -> Result<Membership> {
        let lines = all.iter().enumerate().map(|(to, addresses)| {
            let (followers, elections) = if at == to {
                (addresses.followers, addresses.elections)
            } else {
                let elections = if at > to {
                    addresses.elections
                } else {
                    let back = self.link([to, at], all[at].elections)?;
                    self.introduce(at, addresses.elections, back)?
                };
                let followers = self.link([at, to], addresses.followers)?;
                let way = self.links.last().expect("it was made just now");
                way.proxy.set_patience(LISTENS_WITHIN);
                (followers, self.link([at, to], elections)?)
            };
            Ok(format!("server.{}={followers}:{}\n", to + 1, elections.port()))
        });
        let lines: String = lines.collect::<Result<_>>()?;
        Ok(Membership { number: at + 1, lines: LIMITS.to_owned() + &lines })
    }

    fn link(&mut self, ends: [usize; 2], server: SocketAddr) -> Result<SocketAddr> {
        let proxy = Proxy::before(server)?;
        let address = proxy.addr();
        self.links.push(Link { ends, proxy });
        Ok(address)
    }

    fn introduce(&mut self, member: usize, to: SocketAddr, back: SocketAddr) -> Result<SocketAddr> {
        let introducer = Introducer::start(member + 1, to, back)?;
        let address = introducer.address;
        self.introducers.push(introducer);
        Ok(address)
    }
}
