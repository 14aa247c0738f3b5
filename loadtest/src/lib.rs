//! Load generator and laboratory of the seckill service.
//!
//! A load is many users who want vouchers, each several times at once or on a schedule. Every
//! request is recorded. Afterwards the orders are judged: by what clients got as answers and can
//! see, and on a private cluster by what is in the database. The *matrix* does so for any
//! combination of lock, scope, guards, replicas and fault, and holds each result against a
//! prediction; the *comparison* is the part of it without faults.
//!
//! In reading order:
//! - [`cli`]: the commands, their flags and exit codes; [`loadtest_measure`]: what stops them, and
//!   what all of them print and write.
//! - [`loadtest_load`]: a load, its history, and all calls of the service.
//! - [`loadtest_judge`]: the rules of a sale, and what a verdict is made of.
//! - [`loadtest_lab`]: cells, faults, predictions, injected bugs.
//! - [`loadtest_board`]: two cells side by side, live in a browser.
//! - [`loadtest_report`]: tables, prose, files, the page.
//! - [`mod@bench`]: figures beside the bare transaction, and their bars.
//! - [`run`] and [`up`]: the commands of these names.
//!
//! *Architecture invariant:* this crate knows nothing of the service but its HTTP interface and its
//! command line.

pub mod bench;
pub mod cli;
pub mod run;
pub mod up;
