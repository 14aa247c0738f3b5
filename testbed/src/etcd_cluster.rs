//! A private etcd cluster whose members reach one another by links that can be cut.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::bed_state::BedState;
use crate::ensemble::{Ensemble, Guide, MEMBERS, MemberLinks};
use crate::error::Result;
use crate::etcd::{Etcd, EtcdMembership, EtcdOptions, EtcdPlan};
use crate::forward_proxy::ForwardProxy;
use crate::ports;
use crate::process::start_on_free_port;

/// Three running etcd servers that are one cluster.
pub type EtcdCluster = Ensemble<Etcd>;

/// Where clients reach a member, and its place.
type Place = (SocketAddr, EtcdMembership);

impl EtcdCluster {
    pub(crate) fn start(bed: &Arc<BedState>, options: EtcdOptions) -> Result<Self> {
        let plan = EtcdPlan::new(bed, options)?;
        start_on_free_port(|| Self::start_once(&plan))
    }

    fn start_once(plan: &EtcdPlan<'_>) -> Result<Self> {
        let listens: Vec<_> = (0..MEMBERS).map(|_| ports::free_address()).collect::<Result<_>>()?;
        let all: Vec<_> =
            (0..MEMBERS).map(|to| format!("member-{to}=http://{}", alias(to))).collect();
        let mut links = MemberLinks::default();
        let (mut forward_proxies, mut places): (Vec<Box<dyn Guide>>, Vec<Place>) = (vec![], vec![]);
        for from in 0..MEMBERS {
            let mut ways = Vec::new();
            for to in (0..MEMBERS).filter(|to| *to != from) {
                ways.push((alias(to), links.add([from, to], listens[to])?));
            }
            let forward_proxy = ForwardProxy::start(ways)?;
            let membership = EtcdMembership {
                name: format!("member-{from}"),
                listens: listens[from],
                url: format!("http://{}", alias(from)),
                all: all.join(","),
                http_proxy: Some(forward_proxy.address),
            };
            places.push((ports::free_address()?, membership));
            forward_proxies.push(Box::new(forward_proxy));
        }
        Self::start_members(&places, (links, forward_proxies), |(clients, membership)| {
            plan.start(*clients, membership)
        })
    }

    /// `127.0.0.1:port,127.0.0.1:port,127.0.0.1:port`, as clients want it.
    #[must_use]
    pub fn endpoints(&self) -> String {
        self.members().iter().map(Etcd::endpoint).collect::<Vec<_>>().join(",")
    }
}

impl Guide for ForwardProxy {}

/// The address by which members know one another: of a network for documentation. To addresses of
/// its own machine a member would go without the proxy.
fn alias(member: usize) -> String {
    format!("192.0.2.{}:2380", member + 1)
}
