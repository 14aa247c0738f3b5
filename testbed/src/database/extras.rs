//! What one database server has that others lack.

use std::net::SocketAddr;

use super::Flavor;
use super::dialect::Dialect;
use super::galera::Node;
use super::replicated::Member;
use super::setup::{Files, render};
use crate::bed_state::BedState;
use crate::error::Result;
use crate::shim::Shim;

/// What is unusual about a server.
#[derive(Default)]
pub(super) struct Extras {
    /// It is one of a Galera cluster.
    pub(super) node: Option<Node>,
    pub(super) has_clock: bool,
    pub(super) has_disk_space: bool,
    /// Others may follow what it writes.
    pub(super) has_log: bool,
    /// It is one of a primary and its replicas.
    pub(super) member: Option<Member>,
    /// More lines of its option file.
    pub(super) settings: String,
}

impl Extras {
    /// The password of a group of servers. One may become a copy of another, accounts included.
    pub(super) fn password(&self) -> Option<&str> {
        let of_a_member = self.member.as_ref().map(|member| &member.password);
        of_a_member.or(self.node.as_ref().map(|node| &node.password)).map(String::as_str)
    }

    pub(super) fn env<'a>(
        &self,
        bed: &BedState,
        shims: impl IntoIterator<Item = &'a Shim>,
    ) -> Vec<(String, String)> {
        let of_a_node = self.node.as_ref().map(|_| Node::env(bed));
        Shim::env(shims).into_iter().chain(of_a_node).collect()
    }

    /// The server's option file; `group` is where it meets the other nodes of its cluster.
    pub(super) fn render(
        &self,
        flavor: Flavor,
        files: &Files,
        address: SocketAddr,
        group: Option<SocketAddr>,
    ) -> Result<String> {
        let mut config = render(files, Some(address));
        if let (Some(node), Some(group)) = (&self.node, group) {
            config += &node.render(group)?;
        }
        if self.has_log || self.member.is_some() {
            let log = format!("{}-log", files.data.display());
            config += &Dialect::of(flavor).render_log(&log, address.port());
        }
        if let Some(member) = &self.member {
            config += &member.render(flavor);
        }
        Ok(config + &self.settings)
    }
}
