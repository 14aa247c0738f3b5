//! Nodes of a Galera cluster.
//!
//! A node that joins others gets what it lacks from one of them, by programs that need not be
//! installed. A second node therefore lacks nothing. Both have system tables that were made in the
//! same way, and each makes its own accounts. Their saved states say where they are in the history
//! of the cluster, which is about to begin.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::setup::Server;
use super::{Database, Extras, Flavor};
use crate::bed_state::{BedState, write_private};
use crate::error::Result;
use crate::ports;

/// Before the accounts: they are not replicated to other nodes.
pub(super) const ALONE: &str = "SET SESSION wsrep_on = OFF;\n";

/// What makes a server a node of a Galera cluster.
#[derive(Clone)]
pub(super) struct Node {
    provider: PathBuf,
    /// The history of the cluster.
    history: Uuid,
    /// Where the first node meets others; it is that one if nowhere.
    first: Option<SocketAddr>,
}

impl Node {
    /// Renders its part of the option file; it meets other nodes there. The cache is for nodes that
    /// were away.
    pub(super) fn render(&self, address: SocketAddr) -> Result<String> {
        // Nothing is sent to it there, but it must not meet a stranger on a usual port.
        let [all, missed] = [ports::free_address()?, ports::free_address()?];
        Ok(format!(
            "wsrep_on = ON\n\
             wsrep_provider = {}\n\
             wsrep_provider_options = \"gmcast.listen_addr=tcp://{address};\
             ist.recv_addr={missed};gcache.size=4M;pc.recovery=no\"\n\
             wsrep_cluster_address = gcomm://{}\n\
             wsrep_node_address = {}\n\
             wsrep_sst_receive_address = {all}\n\
             binlog_format = ROW\n\
             innodb_autoinc_lock_mode = 2\n",
            self.provider.display(),
            self.first.map(|first| first.to_string()).unwrap_or_default(),
            address.ip()
        ))
    }

    /// Says where it is in the history: that the first node began it is the one thing in it.
    pub(super) fn save_state(&self, data: &Path) -> Result<()> {
        let (history, seqno) = (self.history, u8::from(self.first.is_some()));
        let state = format!(
            "# GALERA saved state\n\
             version: 2.1\n\
             uuid:    {history}\n\
             seqno:   {seqno}\n\
             safe_to_bootstrap: 1\n"
        );
        write_private(&data.join("grastate.dat"), &state)
    }
}

impl Database {
    /// As the only node of a Galera cluster.
    pub(crate) fn start_galera(bed: &Arc<BedState>) -> Result<Self> {
        let provider = bed.programs.need_library("libgalera_smm.so", "galera-4")?;
        Self::start_node(bed, Node { provider, history: Uuid::new_v4(), first: None })
    }

    /// As the two nodes of a Galera cluster.
    pub(crate) fn start_galera_pair(bed: &Arc<BedState>) -> Result<[Self; 2]> {
        let provider = bed.programs.need_library("libgalera_smm.so", "galera-4")?;
        let node = Node { provider, history: Uuid::new_v4(), first: None };
        let one = Self::start_node(bed, node.clone())?;
        let other = Self::start_node(bed, Node { first: one.group, ..node })?;
        Ok([one, other])
    }

    /// Has each read wait for all that other nodes have committed before (`wsrep_sync_wait`).
    ///
    /// # Errors
    /// If the server does not answer, or is no node.
    pub fn set_causal_reads(&self) -> Result<()> {
        self.run("SET GLOBAL wsrep_sync_wait = 1")
    }

    /// How many of its transactions it has rolled back for those of other nodes.
    ///
    /// # Errors
    /// If the server does not answer, or is no node.
    pub fn rolled_back_for_others(&self) -> Result<u64> {
        let counts = self.query(
            "SHOW GLOBAL STATUS WHERE Variable_name IN \
             ('wsrep_local_cert_failures', 'wsrep_local_bf_aborts')",
        )?;
        let count = |row: &HashMap<String, String>| row.get("Value")?.parse::<u64>().ok();
        Ok(counts.iter().filter_map(count).sum())
    }

    fn start_node(bed: &Arc<BedState>, node: Node) -> Result<Self> {
        let extras = Extras { node: Some(node), ..Extras::default() };
        Self::start_as(bed, &Server::find(bed, Flavor::MariaDb)?, &extras)
    }
}
