//! The tables of a sale on shards, made as docs/shards.md says.

use std::sync::Arc;

use futures_util::future::try_join_all;
use loadtest_measure::error::Result;
use testbed::{Database, ShardedDatabase};

use crate::cluster::{Cluster, blocking};

/// What makes a schema that of a shard.
const OF_A_SHARD: &str = include_str!("../../../deploy/shards/shard.sql");
/// What makes the tables of orders and stock links to the shards.
const OF_THE_FRONT: &str = include_str!("../../../deploy/shards/front.sql");

impl Cluster {
    /// Creates a database on the front and on each shard; the address for the service, password
    /// included. Tables without guards are made on the front alone, and nothing uses them.
    pub(super) async fn schema_on_shards(
        &self,
        group: &Arc<ShardedDatabase>,
        name: &str,
        lab: bool,
    ) -> Result<String> {
        let (all, new) = (group.clone(), name.to_owned());
        blocking(move || all.create_database(&new)).await?;
        let url = group.front().url(name);
        let shards = group.shards().iter().map(|shard| self.prepare_shard(shard, name));
        tokio::try_join!(self.migrate(&url, lab), try_join_all(shards))?;
        run(group.front(), name, OF_THE_FRONT).await?;
        Ok(url)
    }

    async fn prepare_shard(&self, shard: &Arc<Database>, name: &str) -> Result<()> {
        self.migrate(&shard.url(name), false).await?;
        run(shard, name, OF_A_SHARD).await
    }
}

async fn run(server: &Arc<Database>, database: &str, script: &'static str) -> Result<()> {
    let (server, database) = (server.clone(), database.to_owned());
    blocking(move || {
        statements(script).try_for_each(|statement| server.execute_in(&database, &statement))
    })
    .await
}

/// The statements of a script that has comments on lines of their own, and no other semicolons.
fn statements(script: &str) -> impl Iterator<Item = String> {
    let lines: Vec<_> = script.lines().filter(|line| !line.starts_with("--")).collect();
    let text = lines.join("\n");
    let statements: Vec<_> = text.split(';').map(|one| one.trim().to_owned()).collect();
    statements.into_iter().filter(|statement| !statement.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statement_of_the_scripts_is_one_that_changes_a_table_or_checks_that_it_may() {
        for (script, expected) in [(OF_A_SHARD, 4), (OF_THE_FRONT, 13)] {
            let all: Vec<_> = statements(script).collect();
            assert_eq!(all.len(), expected, "{all:#?}");
            let is_known = |one: &String| one.starts_with("ALTER TABLE ") || one.contains("EXP(");
            assert!(all.iter().all(is_known), "{all:#?}");
        }
    }
}
