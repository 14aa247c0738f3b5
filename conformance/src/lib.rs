//! Lock tests between processes, and one suite for every kind of lock.
//!
//! A [`Contender`] is a child process that takes locks on command and reports what happened and
//! when; it can be frozen, thawed and killed. [`Servers`] are the real servers that the processes
//! meet on. The suite is `tests/conformance`: a line in distlock's registry brings a kind all of
//! it; `tests/flaws` shows what kinds are known to get wrong. Reading order: `protocol` (the
//! messages), `section_record`, `failure`, `addresses`, `servers`, `driver` (the client), `looks`.
//! Then `variant` (mechanisms that the registry does not make), `clock`, `counter`, `token_issuer`,
//! `lock_request`, `listed`, `spread`, `witness`, `deadline`, `replica`. Then `column`, `peer`,
//! `jvm`, and `main.rs`, the contender itself.

mod addresses;
pub mod clock;
mod column;
pub mod counter;
mod deadline;
mod driver;
mod failure;
mod jvm;
mod listed;
mod lock_request;
mod looks;
mod peer;
pub mod protocol;
mod replica;
mod section_record;
mod servers;
mod spread;
mod token_issuer;
pub mod variant;
mod witness;

pub use addresses::Addresses;
pub use column::column;
pub use deadline::{WAIT_TIMEOUT, eventually};
pub use driver::{Contender, PendingResponse, setup, setup_of};
pub use jvm::Jvm;
pub use listed::listed;
pub use lock_request::{fresh_name, overlaps, overtaken};
pub use peer::Peer;
pub use replica::Replica;
pub use servers::{
    Home, Servers, StartedServers, ZOOKEEPER_SYNC, busy_until_queued, home, promise, warm_up,
    with_tables,
};
pub use spread::Spread;
pub use token_issuer::FileTokenIssuer;
pub use witness::{Sample, Unproven, Witness, judge};
