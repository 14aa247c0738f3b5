//! Tests on a real Redis Cluster.

mod cluster;
mod cluster_changes;
mod cluster_more;
mod inspection_servers;
#[path = "../support/mod.rs"]
mod support;
mod without_keys;
