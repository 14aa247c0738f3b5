//! The mode `queued`: tickets instead of orders, and orders that follow.

pub(crate) mod buyer;
mod crowd;
mod events;
mod idle;
mod keys;
mod load;
mod locked;
mod lost;
pub(crate) mod place;
mod poison;
mod refill;
mod refusals;
mod stream;
mod streams;
mod taken_over;
mod tries;
