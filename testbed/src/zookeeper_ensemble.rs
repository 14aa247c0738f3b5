//! A private `ZooKeeper` ensemble whose members reach one another by links that can be cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::bed_state::BedState;
use crate::ensemble::{Ensemble, Guide, MEMBERS, MemberLinks};
use crate::error::Result;
use crate::ports;
use crate::process::start_on_free_port;
use crate::zookeeper::{Membership, ZooKeeper, ZooKeeperOptions, ZooKeeperPlan};
use crate::zookeeper_introducer::Introducer;

/// How long a new leader may take to listen. A follower that was refused tries again, and one whose
/// connection ends joins a new election, while the leader waits ten seconds for it.
const LISTENS_WITHIN: Duration = Duration::from_secs(2);
/// In ticks: how long a member may take to join its leader, and how long it may be silent.
const LIMITS: &str = "initLimit=50\nsyncLimit=10\n";

/// Three running `ZooKeeper` servers that are one ensemble.
pub type ZooKeeperEnsemble = Ensemble<ZooKeeper>;

/// Where a member listens.
struct Addresses {
    clients: SocketAddr,
    followers: SocketAddr,
    elections: SocketAddr,
}

impl ZooKeeperEnsemble {
    pub(crate) fn start(bed: &Arc<BedState>, options: ZooKeeperOptions) -> Result<Self> {
        let plan = ZooKeeperPlan::new(bed, options)?;
        start_on_free_port(|| Self::start_once(&plan, &draw_addresses()?, ""))
    }

    pub(crate) fn start_with_observer(
        bed: &Arc<BedState>,
        options: ZooKeeperOptions,
    ) -> Result<(Self, ZooKeeper)> {
        let plan = ZooKeeperPlan::new(bed, options)?;
        start_on_free_port(|| {
            let (addresses, observer) = (draw_addresses()?, Addresses::draw()?);
            let line = observer.line(MEMBERS, ":observer");
            let ensemble = Self::start_once(&plan, &addresses, &line)?;
            let members = addresses.iter().enumerate().map(|(at, to)| to.line(at, "")).collect();
            let lines: [String; 4] = [LIMITS.into(), members, line, "peerType=observer\n".into()];
            let membership = Membership { number: MEMBERS + 1, lines: lines.concat() };
            Ok((ensemble, plan.start(observer.clients, Some(&membership))?))
        })
    }

    /// `observer` is the line of `zoo.cfg` that names one, or empty.
    fn start_once(
        plan: &ZooKeeperPlan<'_>,
        addresses: &[Addresses],
        observer: &str,
    ) -> Result<Self> {
        let mut ways = Ways::default();
        let membership = |member| {
            let Membership { number, lines } = ways.membership(member, addresses)?;
            Ok(Membership { number, lines: lines + observer })
        };
        let memberships: Vec<_> = (0..MEMBERS).map(membership).collect::<Result<_>>()?;
        let places: Vec<_> = addresses.iter().map(|at| at.clients).zip(memberships).collect();
        Self::start_members(&places, (ways.links, ways.introducers), |(clients, membership)| {
            plan.start(*clients, Some(membership))
        })
    }

    /// `127.0.0.1:port,127.0.0.1:port,127.0.0.1:port`, as clients want it.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let members = self.members().iter().map(ZooKeeper::connect_string);
        members.collect::<Vec<_>>().join(",")
    }
}

impl Guide for Introducer {}

impl Addresses {
    fn draw() -> Result<Self> {
        Ok(Self {
            clients: ports::free_address()?,
            followers: ports::free_address()?,
            elections: ports::free_address()?,
        })
    }

    /// The line of `zoo.cfg` for the server of that place.
    fn line(&self, at: usize, role: &str) -> String {
        format!("server.{}={}:{}{role}\n", at + 1, self.followers, self.elections.port())
    }
}

fn draw_addresses() -> Result<Vec<Addresses>> {
    (0..MEMBERS).map(|_| Addresses::draw()).collect()
}

/// How the members reach one another.
#[derive(Default)]
struct Ways {
    links: MemberLinks,
    introducers: Vec<Box<dyn Guide>>,
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
                    let back = self.links.add([to, at], all[at].elections)?;
                    self.introduce(at, addresses.elections, back)?
                };
                let followers = self.links.add([at, to], addresses.followers)?;
                self.links.set_patience_of_last(LISTENS_WITHIN);
                (followers, self.links.add([at, to], elections)?)
            };
            Ok(format!("server.{}={followers}:{}\n", to + 1, elections.port()))
        });
        let lines: String = lines.collect::<Result<_>>()?;
        Ok(Membership { number: at + 1, lines: LIMITS.to_owned() + &lines })
    }

    fn introduce(&mut self, member: usize, to: SocketAddr, back: SocketAddr) -> Result<SocketAddr> {
        let introducer = Introducer::start(member + 1, to, back)?;
        let address = introducer.address;
        self.introducers.push(Box::new(introducer));
        Ok(address)
    }
}
