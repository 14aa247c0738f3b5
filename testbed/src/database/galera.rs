//! Nodes of a Galera cluster.
//!
//! A node that joins others gets a copy of all files from one of them, by programs that need not be
//! installed. A new node therefore lacks nothing. All have system tables that were made in the same
//! way, and each makes its own accounts. Their saved states say where they are in the history of
//! the cluster, in which only nodes have joined. A node that was stopped or killed joins again by
//! what another one remembers (`galera_transfer.sh`, `galera_start.sh`).

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::setup::{Files, Server};
use super::{Database, Extras, Flavor};
use crate::bed_state::{BedState, write_private};
use crate::error::{Error, Result};
use crate::ports;

/// Before the accounts: they are not replicated to other nodes.
pub(super) const ALONE: &str = "SET SESSION wsrep_on = OFF;\n";

/// The program by which a node joins again, as the server names it.
const TRANSFER: &str = "wsrep_sst_missed";
/// The program that starts a node.
const START: &str = "galera_start";
/// What says in its folder where a node is in the history.
const SAVED_STATE: &str = "grastate.dat";
/// Begins the line of the option file that says where other nodes are.
const CLUSTER: &str = "wsrep_cluster_address = gcomm://";
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
    /// Of the account of all nodes: clients reach any of them at one address.
    pub(super) password: String,
    /// Where the nodes before it meet others.
    others: Vec<SocketAddr>,
    /// Whether a read waits for all that other nodes have committed before (`wsrep_sync_wait`).
    causal_reads: bool,
}

impl Node {
    /// The first node of a cluster.
    fn first_of(bed: &BedState, causal_reads: bool) -> Result<Self> {
        let provider = bed.programs.need_library("libgalera_smm.so", "galera-4")?;
        for (name, text) in [
            (TRANSFER, include_str!("galera_transfer.sh")),
            (START, include_str!("galera_start.sh")),
        ] {
            write_private(&bed.path(name), text)?;
            let executable = fs::set_permissions(bed.path(name), fs::Permissions::from_mode(0o700));
            executable.map_err(Error::io("make a script executable"))?;
        }
        let (history, password) = (Uuid::new_v4(), Uuid::new_v4().simple().to_string());
        Ok(Self { provider, history, password, others: Vec::new(), causal_reads })
    }

    /// The program that starts it, and what that is told before the server and its options.
    pub(super) fn starter(bed: &BedState, files: &Files) -> (PathBuf, OsString) {
        (bed.path(START), files.data.join(SAVED_STATE).into())
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
             ist.recv_addr={missed};gcache.size=16M;pc.recovery=no\"\n\
             {CLUSTER}{}\n\
             wsrep_node_address = {}\n\
             wsrep_sst_receive_address = {all}\n\
             wsrep_sst_method = missed\n\
             wsrep_sync_wait = {}\n\
             binlog_format = ROW\n\
             innodb_autoinc_lock_mode = 2\n",
            self.provider.display(),
            listed(&self.others),
            address.ip(),
            u8::from(self.causal_reads)
        ))
    }

    /// Says where it is in the history: each node that came before is one thing in it.
    pub(super) fn save_state(&self, data: &Path) -> Result<()> {
        let (history, seqno) = (self.history, self.others.len());
        let state = format!(
            "# GALERA saved state\n\
             version: 2.1\n\
             uuid:    {history}\n\
             seqno:   {seqno}\n\
             safe_to_bootstrap: 1\n"
        );
        write_private(&data.join(SAVED_STATE), &state)
    }
}

impl Database {
    /// As the nodes of a Galera cluster, which is complete.
    pub(crate) fn start_galera<const NODES: usize>(
        bed: &Arc<BedState>,
        causal_reads: bool,
    ) -> Result<[Self; NODES]> {
        let mut node = Node::first_of(bed, causal_reads)?;
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            let extras = Extras { node: Some(node.clone()), ..Extras::default() };
            let started = Self::start_as(bed, &Server::find(bed, Flavor::MariaDb)?, &extras)?;
            started.await_in_step()?;
            node.others.extend(started.group);
            nodes.push(started);
        }
        for started in &nodes {
            let together = started.nodes_in_quorum()?;
            if usize::try_from(together) != Ok(NODES) {
                return Err(started.failed(format!("is one of {together} nodes, not of {NODES}")));
            }
        }
        // A node that starts again joins the others, instead of beginning a cluster.
        let all = format!("{CLUSTER}{}\n", listed(&node.others));
        for (index, started) in nodes.iter().enumerate() {
            let config = bed.path(&format!("{}.cnf", started.name()));
            let text = fs::read_to_string(&config).map_err(Error::io("read an option file"))?;
            let before = format!("{CLUSTER}{}\n", listed(&node.others[..index]));
            write_private(&config, &text.replace(&before, &all))?;
        }
        Ok(nodes.try_into().expect("as many as were started"))
    }

    /// Stops a node as an operator does; the others serve without it then.
    ///
    /// # Errors
    /// If it has not ended after 30 s.
    pub fn leave(&self) -> Result<()> {
        let status = self.stop(STOPS_WITHIN)?;
        if status.success() { Ok(()) } else { Err(self.failed(format!("ended with {status}"))) }
    }

    /// Starts a node that [left](Self::leave) or was killed again, and waits until it has what it
    /// missed. Another node must remember all of that: 16 MB of it.
    ///
    /// # Errors
    /// If it does not have that within 30 s of its start. A node that was killed within a schema
    /// change never has: it needs a copy of all files.
    pub fn join_again(&self) -> Result<()> {
        self.restart()?;
        self.await_in_step()
    }

    fn await_in_step(&self) -> Result<()> {
        let deadline = Instant::now() + JOINS_WITHIN;
        loop {
            // A node that joins may close the connection on which it is asked.
            let state = self.status_of_node("wsrep_local_state_comment");
            if state.as_ref().is_ok_and(|state| state == "Synced") {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let state = state?;
                return Err(self.failed(format!("has not joined the other nodes: {state}")));
            }
            thread::sleep(POLL);
        }
    }

    /// How many nodes serve with it, itself included; none if it is cut off from the majority.
    ///
    /// # Errors
    /// If the server does not answer, or is no node.
    pub fn nodes_in_quorum(&self) -> Result<u64> {
        if self.status_of_node("wsrep_cluster_status")? != "Primary" {
            return Ok(0);
        }
        self.number_of_node("wsrep_cluster_size")
    }

    /// The number of the last transaction of the cluster that it has committed.
    ///
    /// # Errors
    /// If the server does not answer, or is no node.
    pub fn last_committed(&self) -> Result<u64> {
        self.number_of_node("wsrep_last_committed")
    }

    fn number_of_node(&self, name: &str) -> Result<u64> {
        let number = self.status_of_node(name)?;
        number.parse().map_err(|_| self.failed(format!("has {number:?} as its {name}")))
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
}

/// As a node is told where others are.
fn listed(nodes: &[SocketAddr]) -> String {
    nodes.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use uuid::Uuid;

    use super::{POLL, SAVED_STATE};
    use crate::{Bed, Database};

    fn await_quorum(node: &Database, nodes: u64) {
        let deadline = Instant::now() + Duration::from_secs(40);
        while node.nodes_in_quorum().unwrap() != nodes {
            assert!(Instant::now() < deadline, "not {nodes}: {:?}", node.nodes_in_quorum());
            thread::sleep(POLL);
        }
    }

    #[test]
    fn either_node_of_a_pair_leaves_and_joins_again_with_what_it_missed() {
        let bed = Bed::start().unwrap();
        let nodes = bed.galera::<2>(true).unwrap();
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

    #[test]
    fn a_node_that_was_killed_within_a_schema_change_says_that_it_needs_all_files() {
        let bed = Bed::start().unwrap();
        let [killed, other, _third] = bed.galera::<3>(true).unwrap();
        other.create_database("shop").unwrap();
        other.execute_in("shop", "CREATE TABLE units (id INT PRIMARY KEY)").unwrap();
        let many = "INSERT INTO units SELECT seq FROM seq_1_to_100000";
        other.execute_in("shop", many).unwrap();
        let rows = killed.query("SELECT @@datadir AS data FROM shop.units LIMIT 1").unwrap();
        let state = Path::new(&rows[0]["data"]).join(SAVED_STATE);
        let is_within_a_change = || {
            let no_history = format!("uuid:    {}", Uuid::nil());
            fs::read_to_string(&state).unwrap().contains(&no_history)
        };
        // A change may end between the look and the kill.
        let mut tries = 0..5;
        while !is_within_a_change() {
            assert!(tries.next().is_some(), "no change was met");
            let is_killed = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_killed.load(Ordering::SeqCst) {
                        // The last one fails with the node that was killed.
                        _ = other.execute_in("shop", "ALTER TABLE units FORCE, ALGORITHM = COPY");
                    }
                });
                let deadline = Instant::now() + Duration::from_secs(30);
                while !is_within_a_change() && Instant::now() < deadline {
                    thread::sleep(POLL / 20);
                }
                let outcome = killed.kill();
                is_killed.store(true, Ordering::SeqCst);
                outcome.unwrap();
            });
            if !is_within_a_change() {
                killed.join_again().unwrap();
            }
        }
        let refused = killed.join_again().unwrap_err().to_string();
        assert!(refused.contains("killed within a schema change or a transfer"), "{refused}");
    }

    #[test]
    fn a_majority_of_three_nodes_serves_on_and_takes_a_killed_one_back_and_a_minority_does_not() {
        let bed = Bed::start().unwrap();
        let nodes = bed.galera::<3>(true).unwrap();
        for node in &nodes {
            assert_eq!(node.nodes_in_quorum().unwrap(), 3);
        }
        nodes[2].create_database("shop").unwrap();
        nodes[2].execute_in("shop", "CREATE TABLE units (id INT PRIMARY KEY)").unwrap();
        // A node that has this row is no longer within the schema change.
        nodes[2].execute_in("shop", "INSERT INTO units VALUES (0)").unwrap();
        assert_eq!(nodes[0].query("SELECT id FROM shop.units").unwrap().len(), 1);
        // The one that began the cluster must not begin another one.
        nodes[0].kill().unwrap();
        await_quorum(&nodes[2], 2);
        nodes[2].execute_in("shop", "INSERT INTO units VALUES (1)").unwrap();
        nodes[0].join_again().unwrap();
        assert_eq!(nodes[0].query("SELECT id FROM shop.units").unwrap().len(), 2);
        assert_eq!(nodes[0].nodes_in_quorum().unwrap(), 3);
        nodes[0].kill().unwrap();
        nodes[2].kill().unwrap();
        await_quorum(&nodes[1], 0);
        for statement in ["SELECT id FROM units", "INSERT INTO units VALUES (2)"] {
            let refused = nodes[1].execute_in("shop", statement).unwrap_err().to_string();
            assert!(refused.contains("WSREP has not yet prepared node"), "{refused}");
        }
    }
}
