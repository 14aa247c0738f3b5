//! Tests of `nats` on a real server. Several `Locks` are several processes as far as the server can
//! see.
#![cfg(feature = "nats")]

mod nats;
mod nats_faults;
mod scene;
