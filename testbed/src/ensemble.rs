//! Servers that are one ensemble, whose members reach one another by links that can be cut.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::process::Process;
use crate::proxy::{Direction, Proxy};

/// One may fail, and the other two are still a majority.
pub(crate) const MEMBERS: usize = 3;
/// How long an election may take.
const ELECTED_WITHIN: Duration = Duration::from_mins(1);
/// How often a leader is looked for.
const POLL: Duration = Duration::from_millis(20);

/// A server that can be a member.
pub trait EnsembleMember: Deref<Target = Process> {
    /// Whether it says that it leads the others.
    fn leads(&self) -> bool;

    /// Whether it says that it follows a leader.
    fn follows(&self) -> bool;

    /// Whether it says that it knows of no leader, and so serves no one.
    fn is_apart(&self) -> bool;
}

/// Three running servers that are one ensemble.
#[derive(Debug)]
pub struct Ensemble<M> {
    members: Vec<M>,
    links: MemberLinks,
    /// What else leads from one member to another.
    _guides: Vec<Box<dyn Guide>>,
}

/// Leads from one member to another until it is dropped.
pub(crate) trait Guide: fmt::Debug + Send + Sync {}

/// The ways from each member to the others.
#[derive(Debug, Default)]
pub(crate) struct MemberLinks(Vec<MemberLink>);

/// A way from one member to another.
#[derive(Debug)]
struct MemberLink {
    ends: [usize; 2],
    proxy: Proxy,
}

impl MemberLinks {
    /// Adds a way from one member to a server of another one. Returns where it begins.
    pub(crate) fn add(&mut self, ends: [usize; 2], server: SocketAddr) -> Result<SocketAddr> {
        let proxy = Proxy::before(server)?;
        let address = proxy.addr();
        self.0.push(MemberLink { ends, proxy });
        Ok(address)
    }

    /// As [`Proxy::set_patience`], on the way that was added last.
    pub(crate) fn set_patience_of_last(&self, patience: Duration) {
        if let Some(link) = self.0.last() {
            link.proxy.set_patience(patience);
        }
    }

    fn of(&self, member: usize) -> impl Iterator<Item = &Proxy> {
        self.0.iter().filter(move |link| link.ends.contains(&member)).map(|link| &link.proxy)
    }
}

impl<M> Ensemble<M> {
    /// Starts all members at the same time: none is ready before a majority runs.
    pub(crate) fn start_members<P: Sync>(
        places: &[P],
        (links, guides): (MemberLinks, Vec<Box<dyn Guide>>),
        start: impl Fn(&P) -> Result<M> + Sync,
    ) -> Result<Self>
    where
        M: Send,
    {
        let start = &start;
        let members = thread::scope(|scope| {
            let starts: Vec<_> =
                places.iter().map(|place| scope.spawn(move || start(place))).collect();
            let ends = starts.into_iter().map(|start| start.join().expect("a start never panics"));
            ends.collect::<Result<Vec<_>>>()
        })?;
        Ok(Self { members, links, _guides: guides })
    }

    /// The three servers.
    #[must_use]
    pub fn members(&self) -> &[M] {
        &self.members
    }

    /// Cuts a member off from the two others, and each sees the end of the connections. Clients
    /// still reach it.
    pub fn cut_off(&self, member: usize) {
        self.links.of(member).for_each(Proxy::start_outage);
    }

    /// Lets a member that was cut off reach the others again.
    pub fn join_again(&self, member: usize) {
        self.links.of(member).for_each(Proxy::end_outage);
    }

    /// Swallows all that a member and the others say to each other. Each takes the other for slow,
    /// as long as its limits allow it.
    pub fn silence(&self, member: usize) {
        for link in self.links.of(member) {
            link.set_swallowing(Direction::ToServer, true);
            link.set_swallowing(Direction::ToClient, true);
        }
    }
}

impl<M: EnsembleMember> Ensemble<M> {
    /// Which other member leads instead of that one. Waits for it; the former leader is not asked.
    ///
    /// # Errors
    /// If none does within a minute.
    pub fn successor(&self, former: usize) -> Result<usize> {
        let others = || self.members.iter().enumerate().filter(move |(at, _)| *at != former);
        let leader = || others().find(|(_, member)| member.leads()).map(|(at, _)| at);
        self.poll("no other leader", leader)
    }

    /// Waits until the member follows a leader.
    ///
    /// # Errors
    /// If it does not within a minute.
    pub fn await_follower(&self, member: usize) -> Result<()> {
        let what = format!("member {} does not follow", member + 1);
        self.poll(&what, || self.members[member].follows().then_some(()))
    }

    /// Waits until the member has ended, or says that it knows of no leader.
    ///
    /// # Errors
    /// If it still serves after a minute.
    pub fn await_end_of_service(&self, member: usize) -> Result<()> {
        let has_ended = |member: &M| !member.is_running() || member.is_apart();
        let what = format!("member {} still serves", member + 1);
        self.poll(&what, || has_ended(&self.members[member]).then_some(()))
    }

    fn poll<T>(&self, what: &str, look: impl Fn() -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + ELECTED_WITHIN;
        loop {
            match look() {
                Some(seen) => return Ok(seen),
                None if Instant::now() < deadline => sleep(POLL),
                None => {
                    let reason = format!("{what} within {ELECTED_WITHIN:?}");
                    return Err(self.members[0].failed(reason));
                }
            }
        }
    }

    /// Which member leads the others. Waits for the end of an election.
    ///
    /// # Errors
    /// If there is no leader within a minute.
    pub fn leader(&self) -> Result<usize> {
        self.poll("no leader", || self.members.iter().position(EnsembleMember::leads))
    }
}
