//! Lock tests between processes, and one suite for every kind of lock.
//!
//! A [`Contender`] is a child process that takes locks as it is told and reports what happened and
//! when; it can be frozen, thawed and killed. [`Servers`] are the real servers that the processes
//! meet on. The suite is `tests/conformance`: a line in distlock's registry brings a kind all of
//! it; `tests/flaws` shows what kinds are known to get wrong. Reading order: `protocol` (what is
//! said to a contender), `stay`, `failure`, `addresses`, `servers`, `driver` (how it is said),
//! `looks`, `variant` (mechanisms that the registry does not make), `clock`, `counter`, `mint`,
//! `want`, `spread`, `witness`, `patience`, `replica`, `column`, `peer`, `jvm`; then `main.rs`, the
//! contender itself.

mod addresses;
pub mod clock;
mod column;
pub mod counter;
mod driver;
mod failure;
mod jvm;
mod looks;
mod mint;
mod patience;
mod peer;
pub mod protocol;
mod replica;
mod servers;
mod spread;
mod stay;
pub mod variant;
mod want;
mod witness;

pub use addresses::Addresses;
pub use column::column;
pub use driver::{Contender, Pending, setup, setup_of};
pub use jvm::Jvm;
pub use mint::FileMint;
pub use patience::{PATIENCE, eventually};
pub use peer::Peer;
pub use replica::Replica;
pub use servers::{
    Home, Servers, Started, ZOOKEEPER_SYNC, busy_until_queued, home, promise, warm_up, with_tables,
};
pub use spread::Spread;
pub use want::{fresh_name, overlaps, overtaken};
pub use witness::{Sample, Unproven, Witness, judge};
