//! The processes that serve a deployment, whose processor time an order costs.

use loadtest_lab::deployment::Deployment;
use loadtest_measure::processes::NamedProcess;

use super::figure::{DATABASE, REPLICAS};

/// All of them, each server of a group as well.
pub fn servers_of(deployment: &Deployment) -> Vec<NamedProcess> {
    let mut all = vec![("proxy", deployment.proxy_pid())];
    all.extend(databases(deployment).into_iter().map(|pid| (DATABASE, pid)));
    all.extend(redis(deployment).into_iter().map(|pid| ("redis", pid)));
    all.extend(deployment.replicas().iter().map(|replica| (REPLICAS, replica.pid())));
    all.extend(deployment.lock_servers());
    all
}

fn databases(deployment: &Deployment) -> Vec<u32> {
    if let Some(group) = deployment.replicated_database() {
        return group.servers().iter().map(|server| server.pid()).collect();
    }
    if let Some(nodes) = deployment.galera() {
        return nodes.iter().map(|node| node.pid()).collect();
    }
    if let Some(group) = deployment.shards() {
        return group.shards().iter().chain([group.front()]).map(|server| server.pid()).collect();
    }
    vec![deployment.database().pid()]
}

fn redis(deployment: &Deployment) -> Vec<u32> {
    if let Some(group) = deployment.sentinel() {
        let nodes = group.nodes().iter().map(|node| node.pid());
        return nodes.chain(group.sentinels().iter().map(|sentinel| sentinel.pid())).collect();
    }
    if let Some(cluster) = deployment.redis_cluster() {
        return cluster.masters().iter().chain(cluster.replicas()).map(|node| node.pid()).collect();
    }
    vec![deployment.main_redis().pid()]
}
