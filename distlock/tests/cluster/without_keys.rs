//! Commands without a key. No node redirects them, so none shows that another is the master.

use std::time::Duration;

use crate::support::cluster::Nodes;
use crate::support::eventually;
use distlock::RedisConnection;
use redis::aio::ConnectionManagerConfig;

/// A connection that has never sent a command with a key.
async fn connect(nodes: &Nodes) -> RedisConnection {
    let answer = Some(Duration::from_secs(1));
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(answer)
        .set_response_timeout(answer)
        .set_number_of_retries(1);
    let url = nodes.cluster.url();
    let connection = RedisConnection::connect_lazily(url.as_str(), config).expect("an address");
    eventually("all masters answer", async || connection.ping().await.is_ok()).await;
    connection
}

/// Waits until the replica of the first master is the master.
fn await_promotion(nodes: &Nodes) {
    let is_promoted =
        tokio::task::block_in_place(|| nodes.cluster.replicas()[0].takes_role("master"));
    assert!(is_promoted, "no replica was promoted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_sends_nothing_but_pings_follows_a_failover() {
    for kills in [true, false] {
        let nodes = Nodes::start(1);
        let connection = connect(&nodes).await;
        nodes.act(|cluster| {
            let master = &cluster.masters()[0];
            if kills { master.kill() } else { master.freeze() }
        });
        await_promotion(&nodes);
        eventually("the new master answers", async || connection.ping().await.is_ok()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_of_a_cluster_are_its_masters_after_a_planned_failover() {
    let nodes = Nodes::start(1);
    let connection = connect(&nodes).await;
    let take_over = ["CLUSTER", "FAILOVER", "TAKEOVER"];
    nodes.act(|cluster| cluster.replicas()[0].command(&take_over).map(drop));
    await_promotion(&nodes);
    eventually("the former master answers as well", async || connection.ping().await.is_ok()).await;
    // A node that has not heard of it yet may be asked first.
    eventually("each server is a master", async || {
        let Ok(servers) = connection.servers().await else { return false };
        for mut server in servers {
            let role: Result<redis::Role, _> = redis::cmd("ROLE").query_async(&mut server).await;
            if !matches!(role, Ok(redis::Role::Primary { .. })) {
                return false;
            }
        }
        true
    })
    .await;
}
