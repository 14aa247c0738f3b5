//! Load generator and laboratory of the seckill service.
//!
//! A load is many users who want vouchers, each several times at once or on a schedule. Every
//! request is recorded. Afterwards the orders are judged: by what clients were told and can see,
//! and on a private cluster by what is in the database. The *matrix* does so for any combination of
//! lock, scope, guards, replicas and fault, and holds each result against a prediction; the
//! *comparison* is the part of it without faults.
//!
//! In reading order:
//! - [`cli`]: the commands, their flags and exit codes; [`error`]: what stops them.
//! - [`load`]: who can log in ([`load::tokens`]), a load and its bounds ([`load::plan`]), who
//!   requests what ([`load::mix`]) and when ([`load::arrival`], [`load::trace`]), a connection
//!   ([`load::client`]), how it is carried out ([`load::drive`]), tickets (`load::follow`), what an
//!   answer means ([`load::outcome`]), figures ([`load::live`], [`load::stats`],
//!   [`load::quantiles`], [`load::progress`]), what it cost ([`load::cost`]), its history
//!   ([`load::recorded`]).
//! - [`history`]: the recorded file.
//! - [`judge`]: what is known ([`judge::evidence`]), the rules ([`judge::verdict`], pure), what
//!   clients can see ([`judge::witness`]), what the database holds ([`judge::audit`]), whether it
//!   was a real load ([`judge::validity`]).
//! - [`lab`]: the kinds ([`lab::lock`]), what each cell is to show ([`lab::predict`]), where a cell
//!   stands ([`lab::place`]) and what it is ([`lab::trial`]), what can happen to it
//!   ([`lab::faults`]), private servers ([`lab::cluster`], [`lab::deployment`]), one cell
//!   ([`lab::cell`]) and one with a fault in its middle ([`lab::round`]), all of them
//!   ([`lab::runner`], [`lab::matrix`], [`lab::presets`], [`lab::compare`]), bugs that it must
//!   catch ([`lab::plants`], [`lab::planting`]), histories that stay ([`lab::histories`]),
//!   [`lab::machine`].
//! - [`report`]: tables, prose, files; what is shown of a cell besides its figures
//!   ([`report::detail`], [`lab::metrics`]); the page ([`report::html`]); what changed since an
//!   earlier run ([`report::baseline`]).
//! - [`mod@bench`]: figures beside the bare transaction, and their bars.
//! - [`run`] and [`up`]: the commands of these names; [`api`] has all calls but the purchase.
//!
//! *Architecture invariant:* this crate knows nothing of the service but its HTTP interface and its
//! command line, and only [`judge::audit`] reads a database.

pub mod api;
pub mod bench;
pub mod cli;
pub mod error;
pub mod history;
pub mod judge;
pub mod lab;
pub mod load;
pub mod report;
pub mod run;
pub mod say;
pub mod up;
