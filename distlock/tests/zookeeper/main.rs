//! Tests of `zookeeper` on a real server. Several `Locks`, each with a session of its own, are
//! several processes as far as the server can see.
#![cfg(feature = "zookeeper")]

mod inspection_zookeeper;
#[path = "../support/zookeeper/mod.rs"]
mod support;
mod zookeeper;
mod zookeeper_ensemble;
mod zookeeper_faults;
mod zookeeper_sessions;
