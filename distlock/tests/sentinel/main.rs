//! Tests on a real Redis with replicas and sentinels.

mod every_kind;
mod failover;
mod former_master;
mod group;
#[path = "../support/mod.rs"]
mod support;
