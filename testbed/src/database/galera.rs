//! Nodes of a Galera cluster.
//!
//! A node that joins others gets a copy of all files from one of them, by programs that need not be
//! installed. A second node therefore lacks nothing. Both have system tables that were made in the
//! same way, and each makes its own accounts. Their saved states say where they are in the history
//! of the cluster, which is about to begin. A node that was stopped joins again by what the other
//! one remembers (`galera_transfer.sh`).

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::setup::Server;
use super::{Database, Extras, Flavor};
use crate::bed_state::{BedState, write_private};
use crate::error::{Error, Result};
use crate::ports;

/// Before the accounts: they are not replicated to other nodes.
pub(super) const ALONE: &str = "SET SESSION wsrep_on = OFF;\n";

/// The program by which a node joins again, as the server names it.
const TRANSFER: &str = "wsrep_sst_missed";
/// How long a node may take to end.
const STOPS_WITHIN: Duration = Duration::from_secs(30);
/// How long a node that runs may take to have what it missed.
const JOINS_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// What makes a server a node of a Galera cluster.
#[derive(Clone)]
pub(super) struct Node {
    provider: PathBuf,
    /// The history of the cluster.
    history: Uuid,
    /// Where the first node meets others; it is that one if nowhere.
    first: Option<SocketAddr>,
    /// Whether a read waits for all that other nodes have committed before (`wsrep_sync_wait`).
    causal_reads: bool,
}

impl Node {
    /// The first node of a cluster.
    fn first_of(bed: &BedState, causal_reads: bool) -> Result<Self> {
        let provider = bed.programs.need_library("libgalera_smm.so", "galera-4")?;
        let transfer = bed.path(TRANSFER);
        write_private(&transfer, include_str!("galera_transfer.sh"))?;
        let executable = fs::set_permissions(&transfer, fs::Permissions::from_mode(0o700));
        executable.map_err(Error::io("make a script executable"))?;
        Ok(Self { provider, history: Uuid::new_v4(), first: None, causal_reads })
    }

    /// The environment in which the server finds the program by which nodes join.
    pub(super) fn env(bed: &BedState) -> (String, String) {
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
        ("PATH".to_owned(), format!("{}:{path}", bed.dir().display()))
    }

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
             wsrep_sst_method = missed\n\
             wsrep_sync_wait = {}\n\
             binlog_format = ROW\n\
             innodb_autoinc_lock_mode = 2\n",
            self.provider.display(),
            self.first.map(|first| first.to_string()).unwrap_or_default(),
            address.ip(),
            u8::from(self.causal_reads)
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
        Self::start_node(bed, Node::first_of(bed, false)?)
    }

    /// As the two nodes of a Galera cluster.
    pub(crate) fn start_galera_pair(bed: &Arc<BedState>, causal_reads: bool) -> Result<[Self; 2]> {
        let node = Node::first_of(bed, causal_reads)?;
        let one = Self::start_node(bed, node.clone())?;
        let other = Self::start_node(bed, Node { first: one.group, ..node })?;
        if let Some(other) = other.group {
            // When it starts again it joins, instead of beginning a cluster.
            let config = bed.path(&format!("{}.cnf", one.name()));
            let text = fs::read_to_string(&config).map_err(Error::io("read an option file"))?;
            write_private(&config, &text.replace("gcomm://\n", &format!("gcomm://{other}\n")))?;
        }
        Ok([one, other])
    }

    /// Stops a node of a pair as an operator does; the other one serves alone then.
    ///
    /// # Errors
    /// If it has not ended after 30 s.
    pub fn leave(&self) -> Result<()> {
        let status = self.stop(STOPS_WITHIN)?;
        if status.success() { Ok(()) } else { Err(self.failed(format!("ended with {status}"))) }
    }

    /// Starts a node that [left](Self::leave) again, and waits until it has what it missed. The
    /// other node must remember all of that: 4 MB of it.
    ///
    /// # Errors
    /// If it does not have that within 30 s of its start.
    pub fn join_again(&self) -> Result<()> {
        self.restart()?;
        let deadline = Instant::now() + JOINS_WITHIN;
        loop {
            let state = self.status_of_node("wsrep_local_state_comment")?;
            if state == "Synced" {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(self.failed(format!("has not joined the other node: {state}")));
            }
            thread::sleep(POLL);
        }
    }

    /// The number of the last transaction of the cluster that it has committed.
    ///
    /// # Errors
    /// If the server does not answer, or is no node.
    pub fn last_committed(&self) -> Result<u64> {
        let number = self.status_of_node("wsrep_last_committed")?;
        number.parse().map_err(|_| self.failed(format!("has committed {number:?}")))
    }

    fn status_of_node(&self, name: &str) -> Result<String> {
        let rows = self.query(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
        Ok(rows.first().and_then(|row| row.get("Value")).cloned().unwrap_or_default())
    }

    /// Has a node that lost its quorum serve again, as the only one of its cluster.
    ///
    /// # Errors
    /// If the server does not answer, or is no node.
    pub fn serve_without_quorum(&self) -> Result<()> {
        self.run("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'")
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

#[cfg(test)]
mod tests {
    use crate::Bed;

    #[test]
    fn either_node_of_a_pair_leaves_and_joins_again_with_what_it_missed() {
        let bed = Bed::start().unwrap();
        let nodes = bed.galera_pair_with_causal_reads().unwrap();
        nodes[0].create_database("shop").unwrap();
        nodes[0].execute_in("shop", "CREATE TABLE units (id INT PRIMARY KEY)").unwrap();
        for leaves in [1, 0] {
            let (node, other) = (&nodes[leaves], &nodes[1 - leaves]);
            node.leave().unwrap();
            let before = other.last_committed().unwrap();
            other.execute_in("shop", &format!("INSERT INTO units VALUES ({leaves})")).unwrap();
            assert!(other.last_committed().unwrap() > before);
            node.join_again().unwrap();
            assert!(node.last_committed().unwrap() > before);
            let missed = format!("SELECT id FROM shop.units WHERE id = {leaves}");
            assert_eq!(node.query(&missed).unwrap().len(), 1, "node {leaves}");
            node.execute_in("shop", &format!("INSERT INTO units VALUES ({})", leaves + 2)).unwrap();
        }
        let all = nodes[1].query("SELECT id FROM shop.units").unwrap();
        assert_eq!(all.len(), 4, "{all:?}");
    }
}
