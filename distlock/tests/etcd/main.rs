//! Tests of `etcd` on a real server. Several `Locks` are several processes as far as the server can
//! see.
#![cfg(feature = "etcd")]

mod etcd;
mod etcd_cluster;
mod etcd_faults;
mod etcd_users;
#[path = "../support/etcd/mod.rs"]
mod support;
