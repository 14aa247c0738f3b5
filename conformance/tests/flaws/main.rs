//! Every known flaw of a lock, shown on real servers, and shown to be gone in a kind that repairs
//! it.
//!
//! The lockers are processes of their own that use the library. Only the pause, the cut, the kill
//! or the jump of a clock comes from outside. Each test has a witness that it happened. A flaw and
//! its repair meet the same provocation. The `ledger` names the tests of each flaw; a flaw in
//! [`guarantees`](distlock::guarantees) that has none fails.

mod clocks;
mod database;
mod database_failover;
mod failover;
mod fence;
mod five;
mod galera;
mod late_release;
mod ledger;
mod long_work;
mod multi;
mod mysql_named;
mod mysql_pool;
mod mysql_row;
mod no_exclusion;
mod redlock;
mod reentry;
mod scene;
mod server_clock;
mod stays_for_ever;
mod wake_up;
mod zookeeper;
