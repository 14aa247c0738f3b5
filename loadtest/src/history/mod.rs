//! The recorded history of a load: every request, every fault, and what was read in the end, in one
//! compressed file that is judged again whenever somebody wants to. `docs/history.md` is its
//! format.
//!
//! - [`event`]: what a line says.
//! - [`writer`]: [`Recorder`], which writes while the load runs.
//! - [`finals`]: what is read in the end, as events.
//! - [`reader`]: [`Reader`], which reads a file line by line.
//! - [`past`]: [`Past`], a whole history as it is judged.
//! - [`key`]: what an idempotency key comes to.

pub mod event;
pub mod finals;
mod id;
pub mod key;
mod maybe_id;
pub mod past;
pub mod reader;
pub mod writer;

pub use event::{
    Account, Begin, Condition, Ended, Event, FAULT, Grant, Invoke, Mark, Offer, Source,
};
pub use finals::FinalRead;
pub use past::{Lot, Past};
pub use reader::{ReadError, Reader};
pub use writer::{Recorder, Written};

/// The header's setting, of any value, that says that each order was to leave a fencing token.
pub const FENCED: &str = "fenced";
/// The header's setting that says for what one request at a time holds a lock: `user`, `voucher`.
pub const ONE_HOLDER_PER: &str = "one_holder_per";
/// The header's setting that names the rules on faults that the run demands, separated by commas.
pub const DEMANDS: &str = "demands";
