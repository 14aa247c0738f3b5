//! The path `queued`: tickets instead of orders, and orders that follow.

mod buyer;
mod crowd;
mod events;
mod load;
mod lost;
mod poison;
mod refusals;
mod stream;
mod taken_over;
