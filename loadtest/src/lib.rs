//! Load generator and laboratory of the seckill service.
//!
//! A load is many users who each want the same voucher several times at once. Afterwards the orders
//! are judged: by what clients were told and can see, and on a private cluster by what is in the
//! database. The *comparison* does so for every combination of lock, scope, guards and replicas,
//! and holds the result against a prediction.
//!
//! In reading order:
//! - [`cli`]: the three commands, their flags and exit codes; [`error`]: what stops them.
//! - A load: [`tokens`] (who can log in), [`plan`] (who requests what), [`client`] (one
//!   connection), [`drive`] (the closed loop), [`outcome`] (what an answer means), [`stats`]
//!   (figures), [`progress`] (while it runs).
//! - A verdict: [`evidence`] (what is known), [`verdict`] (the rules, pure), [`witness`] (what
//!   clients can see), [`audit`] (what the database holds), [`validity`] (whether it was a real
//!   load).
//! - `loadtest run`: [`run`], [`run_text`], with [`api`] for all calls but the purchase.
//! - `loadtest compare`: [`lock`] (the kinds), [`predict`] (what each cell is to show), [`place`],
//!   [`cluster`] (private servers), [`cell`], [`compare`], [`table`], [`conclusion`], [`report`],
//!   [`machine`].
//! - `loadtest up`: [`up`].
//!
//! *Architecture invariant:* this crate knows nothing of the service but its HTTP interface and its
//! command line, and only [`audit`] reads a database.

pub mod api;
pub mod audit;
pub mod cell;
pub mod cli;
pub mod client;
pub mod cluster;
pub mod compare;
pub mod conclusion;
pub mod drive;
pub mod error;
pub mod evidence;
pub mod lock;
pub mod machine;
pub mod outcome;
pub mod place;
pub mod plan;
pub mod predict;
pub mod progress;
pub mod report;
pub mod run;
pub mod run_text;
pub mod stats;
pub mod table;
pub mod tokens;
pub mod up;
pub mod validity;
pub mod verdict;
pub mod witness;
