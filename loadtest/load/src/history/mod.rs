//! The recorded history of a load: every request, every fault, and the final reads, in one
//! compressed file that can be judged again. `docs/history.md` is its format.
//!
//! - [`event`]: what a line says.
//! - [`writer`]: [`Recorder`], which writes while the load runs.
//! - [`record`]: a request as its client saw it.
//! - [`final_state`]: the final state; [`final_reads`]: the final reads as events.
//! - [`reader`]: [`Reader`], which reads a file line by line.
//! - [`parsed`]: [`History`], a whole history as it is judged.
//! - [`key`]: the hash of an idempotency key.

pub mod event;
pub mod final_reads;
pub mod final_state;
mod id;
pub mod key;
mod maybe_id;
pub mod parsed;
pub mod reader;
pub mod record;
pub mod writer;

pub use event::{
    Account, Begin, Completion, Condition, Event, FAULT, Grant, Invoke, Mark, Offer, Source,
};
pub use final_reads::FinalRead;
pub use parsed::{History, VoucherHistory};
pub use reader::{ReadError, Reader};
pub use writer::{EventObserver, Recorder, Written};

/// The header's setting, of any value, that says that each order has to leave a fencing token.
pub const FENCED: &str = "fenced";
/// The header's setting that says for what one request at a time holds a lock: `user`, `voucher`.
pub const ONE_HOLDER_PER: &str = "one_holder_per";
/// The header's setting that says for what there is a lock: `user`, `voucher`.
pub const LOCK_PER: &str = "lock_per";
/// The header's setting that says how long a request waits for its lock before it is refused, in
/// milliseconds.
pub const LOCK_WAIT_MS: &str = "lock_wait_ms";
/// The header's setting that names the rules on faults that the run demands, separated by commas.
pub const DEMANDS: &str = "demands";
