//! Several servers, and one in front of them whose tables lie on them, by the Spider engine.
//!
//! The front has a name for each shard (`CREATE SERVER`): `shard0`, `shard1` and so on. Which table
//! lies where is up to the caller.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use super::setup::Server;
use super::{Database, Extras, Flavor};
use crate::bed_state::BedState;
use crate::error::Result;

/// A session of the front sets no time-out of a session on a shard.
const OF_A_SHARD: &str = "innodb_lock_wait_timeout = 3\n";

/// A front and its shards; see [`Bed::sharded`](crate::Bed::sharded).
#[derive(Debug)]
pub struct ShardedDatabase {
    front: Arc<Database>,
    shards: Vec<Arc<Database>>,
}

impl ShardedDatabase {
    pub(crate) fn start(bed: &Arc<BedState>, count: usize) -> Result<Self> {
        let spider = bed.programs.need_library("ha_spider.so", "mariadb-plugin-spider")?;
        let server = Server::find(bed, Flavor::MariaDb)?;
        let start = |settings: String| {
            let extras = Extras { settings, ..Extras::default() };
            Database::start_as(bed, &server, &extras).map(Arc::new)
        };
        let (front, shards) = thread::scope(|scope| {
            let front = scope.spawn(|| start(front_settings(&spider)));
            let shards: Vec<_> =
                (0..count).map(|_| scope.spawn(|| start(OF_A_SHARD.to_owned()))).collect();
            let joined = shards.into_iter().map(|one| one.join().expect("a start does not panic"));
            let shards = joined.collect::<Result<Vec<_>>>();
            (front.join().expect("a start does not panic"), shards)
        });
        let group = Self { front: front?, shards: shards? };
        for (number, shard) in group.shards.iter().enumerate() {
            let (login, address) = (&shard.login, shard.addr());
            group.front.run(&format!(
                "CREATE SERVER shard{number} FOREIGN DATA WRAPPER mysql OPTIONS \
                 (HOST '{}', PORT {}, USER '{}', PASSWORD '{}')",
                address.ip(),
                address.port(),
                login.user,
                login.password
            ))?;
        }
        Ok(group)
    }

    /// Creates a database of that name on the front and on each shard.
    ///
    /// # Errors
    /// As [`Database::create_database`].
    pub fn create_database(&self, name: &str) -> Result<()> {
        self.servers().try_for_each(|server| server.create_database(name))
    }

    /// The server that clients use.
    #[must_use]
    pub fn front(&self) -> &Arc<Database> {
        &self.front
    }

    /// The servers that have the rows, in the order of their names.
    #[must_use]
    pub fn shards(&self) -> &[Arc<Database>] {
        &self.shards
    }

    fn servers(&self) -> impl Iterator<Item = &Arc<Database>> {
        [&self.front].into_iter().chain(&self.shards)
    }
}

/// A frozen shard must not hold a session of the front for longer than a call of the service.
fn front_settings(spider: &Path) -> String {
    let folder = spider.parent().unwrap_or(Path::new("/")).display();
    format!(
        "plugin-dir = {folder}\n\
         plugin-load-add = ha_spider\n\
         spider_connect_timeout = 1\n\
         spider_connect_retry_count = 1\n\
         spider_net_read_timeout = 5\n\
         spider_net_write_timeout = 5\n"
    )
}
