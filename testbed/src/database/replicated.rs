//! A primary with replicas that follow it by GTID, and their failover.
//!
//! Every server starts read-only; the primary is made writable afterwards, so a server that comes
//! back is never one. Each replica reaches its primary through a [`Proxy`], which can make it lag.
//!
//! Semi-synchronous: a COMMIT is answered when a replica has it in its relay log (`AFTER_SYNC`),
//! and waits for a day if none has. After a failover that leaves no replica the new primary waits
//! for none, until one [rejoins](ReplicatedDatabase::rejoin).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::dialect::Dialect;
use super::setup::Server;
use super::{Database, Extras, Flavor};
use crate::bed_state::BedState;
use crate::error::Result;
use crate::proxy::Proxy;

/// The account without the right to write to a read-only server.
pub(super) const CLIENT: &str = "shop";
/// How long replicas have until they replicate, or have applied what they received.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// When a primary answers a COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Replication {
    /// When a replica has it in its relay log.
    SemiSync,
    /// When it has it itself.
    Async,
}

/// What makes a server one of a group.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) password: String,
    replication: Replication,
    /// Whether there are two servers.
    is_pair: bool,
}

impl Member {
    /// Before and after the statements that make the server's own account: nothing of them is for
    /// the log, where it would be a change that no other server has.
    pub(super) fn init_sql(&self, accounts: &str) -> String {
        let password = &self.password;
        format!(
            "SET SESSION sql_log_bin = 0;\n\
             {accounts}\
             CREATE USER IF NOT EXISTS '{CLIENT}'@'%' IDENTIFIED BY '{password}';\n\
             GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, REFERENCES, INDEX, ALTER, \
             LOCK TABLES, CREATE TEMPORARY TABLES, EXECUTE, TRIGGER ON *.* TO '{CLIENT}'@'%';\n"
        )
    }

    /// Renders the part of the option file for members.
    pub(super) fn render(&self, flavor: Flavor) -> String {
        Dialect::of(flavor).render_member(self.replication, self.is_pair)
    }
}

/// A primary and its replicas; see [`Bed::replicated`](crate::Bed::replicated).
#[derive(Debug)]
pub struct ReplicatedDatabase {
    servers: Vec<Arc<Database>>,
    /// The way of each to its primary.
    links: Vec<Proxy>,
    primary: AtomicUsize,
    /// One change of roles at a time.
    changing: Mutex<()>,
    replication: Replication,
    password: String,
}

impl ReplicatedDatabase {
    pub(crate) fn start(
        bed: &Arc<BedState>,
        flavor: Flavor,
        replication: Replication,
        replicas: usize,
    ) -> Result<Self> {
        let password = Uuid::new_v4().simple().to_string();
        let member = Member { password: password.clone(), replication, is_pair: replicas == 1 };
        let server = Server::find(bed, flavor)?;
        let start_one = || {
            let extras = Extras { member: Some(member.clone()), ..Extras::default() };
            Database::start_as(bed, &server, &extras).map(Arc::new)
        };
        let servers = thread::scope(|scope| {
            let started: Vec<_> = (0..=replicas).map(|_| scope.spawn(start_one)).collect();
            let joined = started.into_iter().map(|one| one.join().expect("a start does not panic"));
            joined.collect::<Result<Vec<_>>>()
        })?;
        let links = servers.iter().map(|_| Proxy::before(servers[0].addr()));
        let links = links.collect::<Result<Vec<_>>>()?;
        let (primary, changing) = (AtomicUsize::new(0), Mutex::new(()));
        let group = Self { servers, links, primary, changing, replication, password };
        group.servers[0].allow_writes()?;
        group.follow_primary(1..=replicas)?;
        Ok(group)
    }

    /// `mysql://shop:password@127.0.0.1:port,127.0.0.1:port/database?ssl-mode=disabled`, of an
    /// account that cannot write to a read-only server.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let places: Vec<_> = self.servers.iter().map(|server| server.addr().to_string()).collect();
        self.url_of(&places.join(","), database)
    }

    /// The address of the primary alone.
    #[must_use]
    pub fn primary_url(&self, database: &str) -> String {
        self.url_of(&self.primary().addr().to_string(), database)
    }

    fn url_of(&self, places: &str, database: &str) -> String {
        let password = &self.password;
        format!("mysql://{CLIENT}:{password}@{places}/{database}?ssl-mode=disabled")
    }

    /// All servers, in the order of the address.
    #[must_use]
    pub fn servers(&self) -> &[Arc<Database>] {
        &self.servers
    }

    /// The server that was made primary last, whether it lives or not.
    #[must_use]
    pub fn primary(&self) -> &Arc<Database> {
        &self.servers[self.primary.load(Ordering::SeqCst)]
    }

    /// The ways on which replicas hear of their primary.
    pub fn links(&self) -> impl Iterator<Item = &Proxy> {
        let primary = self.primary.load(Ordering::SeqCst);
        self.links.iter().enumerate().filter(move |(at, _)| *at != primary).map(|(_, link)| link)
    }

    /// Makes the replica that received most the primary, once it has applied that; the others
    /// follow it. The old primary must be dead or frozen. Returns the new one.
    ///
    /// # Errors
    /// If no replica runs, or one does not answer.
    pub fn fail_over(&self) -> Result<&Arc<Database>> {
        let _one_at_a_time = self.changing.lock();
        let old = self.primary.load(Ordering::SeqCst);
        let mut received = Vec::new();
        for at in (0..self.servers.len()).filter(|at| *at != old && self.servers[*at].is_running())
        {
            let server = &self.servers[at];
            server.run("STOP REPLICA IO_THREAD")?;
            received.push((server.transactions()?, at));
        }
        received.sort_unstable();
        let Some((_, new)) = received.pop() else {
            return Err(self.servers[old].failed("has no replica that could follow it".into()));
        };
        let successor = &self.servers[new];
        successor.catch_up()?;
        successor.promote()?;
        successor.allow_writes()?;
        self.primary.store(new, Ordering::SeqCst);
        self.follow_primary(received.into_iter().map(|(_, at)| at))?;
        Ok(&self.servers[new])
    }

    /// Starts the primary again, as the primary: a supervisor does so without a failover.
    ///
    /// # Errors
    /// If it does not start, or does not take writes.
    pub fn restart_primary(&self) -> Result<()> {
        let _one_at_a_time = self.changing.lock();
        let primary = self.primary();
        primary.restart()?;
        self.await_replicas_at_commit()?;
        primary.allow_writes()
    }

    /// Has the primary answer a COMMIT when a replica has it, if it is semi-synchronous.
    fn await_replicas_at_commit(&self) -> Result<()> {
        let primary = self.primary();
        match self.replication {
            Replication::Async => Ok(()),
            Replication::SemiSync => {
                let waits = primary.dialect().semi_sync_source();
                primary.run(&format!("SET GLOBAL {waits} = ON"))
            }
        }
    }

    /// Starts the server again as a replica of the primary, and waits until it replicates.
    ///
    /// It should not have what the primary has not. With `MySQL` that is compared before it
    /// follows: a semi-synchronous server becomes a copy of the primary, an asynchronous one is
    /// refused. With `MariaDB` recovery drops what the engine has not committed; anything else that
    /// the primary has not ends its replication, perhaps only after this call has returned.
    ///
    /// # Errors
    /// If it does not replicate within 20 s after its restart, or its clone, with the reason that
    /// it gives.
    pub fn rejoin(&self, server: &Database) -> Result<()> {
        let _one_at_a_time = self.changing.lock();
        let at = self.servers.iter().position(|one| one.addr() == server.addr());
        let at = at.ok_or_else(|| server.failed("is none of these".into()))?;
        server.restart()?;
        match server.flavor {
            Flavor::MySql => self.discard_unconfirmed(server)?,
            Flavor::MariaDb | Flavor::Any => {
                server.run("SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos")?;
            }
        }
        self.follow_primary([at])
    }

    /// Has a `MySQL` server that was a primary, and has more than its successor, become a copy of
    /// that. An asynchronous one may have acknowledged what it has more, and keeps it.
    fn discard_unconfirmed(&self, server: &Database) -> Result<()> {
        let is_replica = !server.status()?.is_empty();
        if is_replica {
            return Ok(());
        }
        let more = server.not_in(&server.applied()?, self.primary())?;
        match self.replication {
            _ if more.is_empty() => Ok(()),
            Replication::SemiSync => server.become_copy_of(self.primary()),
            Replication::Async => {
                Err(server.failed(format!("does not replicate: the primary has not {more}")))
            }
        }
    }

    fn follow_primary(&self, replicas: impl IntoIterator<Item = usize>) -> Result<()> {
        let primary = self.primary();
        for at in replicas {
            self.await_replicas_at_commit()?;
            let (replica, link) = (&self.servers[at], &self.links[at]);
            link.heal();
            link.lead_to(primary.addr());
            link.cut();
            replica.run("STOP REPLICA")?;
            replica.follow_by_gtid(&primary.login, link.addr())?;
            self.await_replication(replica)?;
        }
        Ok(())
    }

    /// Until the replica has what the primary had, and confirms it where it has to.
    fn await_replication(&self, replica: &Database) -> Result<()> {
        let deadline = Instant::now() + CATCH_UP_WITHIN;
        let (running, behind) = (replica.dialect().running(), replica.dialect().seconds_behind());
        loop {
            let status = replica.status()?;
            let says = |key: &String, value: &str| status.get(key).is_some_and(|is| is == value);
            let runs = running.iter().all(|column| says(column, "Yes"));
            if runs && says(&behind, "0") && self.is_confirmed(replica)? {
                return Ok(());
            }
            let failed = ["Last_IO_Error", "Last_SQL_Error"].map(|key| status.get(key).cloned());
            let failed: String = failed.into_iter().flatten().collect();
            if !failed.is_empty() && !runs || Instant::now() >= deadline {
                return Err(replica.failed(format!("does not replicate: {failed}")));
            }
            thread::sleep(POLL);
        }
    }

    fn is_confirmed(&self, replica: &Database) -> Result<bool> {
        let status = replica.dialect().semi_sync_replica();
        let confirms = replica.query(&format!("SHOW GLOBAL STATUS LIKE '{status}'"))?;
        let confirms = confirms.first().and_then(|row| row.get("Value")).is_some_and(|v| v == "ON");
        Ok(confirms == (self.replication == Replication::SemiSync))
    }
}
