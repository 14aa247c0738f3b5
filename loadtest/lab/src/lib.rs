//! The laboratory: private servers, cells, and what each must show.
//!
//! - the kinds of lock ([`lock`]), and what each cell must show ([`predict`]);
//! - a cell's place ([`cell_axes`]), what it is ([`cell_spec`]), its servers ([`topology`]) and its
//!   faults ([`faults`]);
//! - private servers ([`cluster`], [`deployment`], [`fleet`], [`requirements`]), and the commands
//!   that reach them ([`command_tap`]), and what a lease has left there ([`key_lease`]);
//! - one cell ([`cell`]), one with a fault in its middle ([`round`]), and a sale that a person
//!   watches ([`watched_sale`]);
//! - runs of cells ([`runner`], [`matrix_axes`], [`matrix`], [`presets`], [`compare`]);
//! - bugs that it must catch ([`injected_bugs`], [`injection_run`]), and histories that stay
//!   ([`histories`]);
//! - the lessons of a tutorial, each as two cells ([`ladder`]).
//!
//! It returns results ([`results`], [`injection_results`]) and draws none. While it runs, it tells
//! an observer of each cell that ends.

mod bug_cases;
pub mod cell;
pub mod cell_axes;
pub mod cell_plan;
pub mod cell_spec;
pub mod cluster;
mod command;
pub mod command_tap;
pub mod compare;
pub mod deployment;
pub mod detail;
pub mod faults;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod fleet;
pub mod histories;
pub mod injected_bugs;
pub mod injection_results;
pub mod injection_run;
pub mod java;
pub mod jvm_support;
pub mod key_lease;
pub mod ladder;
mod load_rate;
pub mod lock;
pub mod lock_server;
pub mod matrix;
pub mod matrix_axes;
pub mod metrics;
pub mod oversell_moment;
pub mod predict;
pub mod presets;
mod redis_stream;
mod replica_starter;
pub mod requirements;
pub mod results;
mod resume_state;
pub mod round;
mod round_counts;
mod round_history;
pub mod runner;
mod sale;
mod sale_database;
mod seeded_rng;
mod sell_out;
pub mod series;
mod shards;
pub mod topology;
mod topology_cells;
mod warm_up;
pub mod watched_sale;
