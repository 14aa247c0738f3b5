//! All SQL, and the Redis side of what the service keeps: login codes, rate limits, order numbers
//! and the queues of the queued mode.
//!
//! `session` is the only way to the database: every call has a time-out, and a connection whose
//! state is in doubt is closed, never pooled. `tables` names the tables of the sale; the other
//! files hold the statements, one subject each.

mod audit;
mod batches;
mod call_limit;
mod charges;
mod codes;
pub mod dianping;
mod effects;
mod error;
mod health;
mod idempotency;
mod limits;
mod migrate;
mod order_counter;
mod order_ids;
mod orders;
mod phones;
mod pools;
mod primary;
mod quarantine;
mod replicas;
mod resolve;
mod revocations;
mod rights;
mod run_records;
mod session;
mod settlement;
mod stock_buckets;
mod stream;
mod stream_leases;
mod tables;
mod tickets;
mod users;
mod vouchers;

pub use audit::Audit;
pub use batches::BatchPrecheck;
pub use codes::{CodeRules, Codes, LoginAttempt};
pub use effects::leave_effect;
pub use error::{Duplicate, StoreError};
pub use health::{Health, WatchedServers, keep_watch};
pub use idempotency::StoredRequest;
pub use limits::{Rate, RateLimiter};
pub use migrate::migrate;
pub use order_counter::OrderCounter;
pub use order_ids::OrderIds;
pub use orders::{NewOrder, OrderReading, Orders};
pub use phones::{Phones, SetAsideUser, normalize_phones};
pub use pools::{
    DatabaseOptions, RedisAddress, RedisConnection, RedisKeys, check_database_access,
    check_database_address, database, database_in_server_zone, redis, redis_later, refuse_eviction,
};
pub use quarantine::QuarantinedEntry;
pub use replicas::Replicas;
pub use resolve::{Resolution, resolve, resolve_status};
pub use revocations::{Revocation, RevocationTable};
pub use rights::{RedisRights, RedisUse};
pub use run_records::{EarlierRun, RunRecord, RunRecords};
pub use session::{CommitError, ConnectionIdentity, OpenedTransaction, Session, Transaction};
pub use settlement::{SettleError, Settlement};
pub use stream::{
    Admission, AdmissionRequest, EntryEnd, Progress, QueueOpening, QueuePlace, QueuedOrder,
    ReadMode, SaleStream, StreamEntry, Units, Unreadable,
};
pub use stream_leases::StreamLeases;
pub use tables::SaleTables;
pub use tickets::{AdmittedTicket, DeadLetter, Tickets};
pub use users::{LoginUser, Users};
pub use vouchers::{Change, ChangedVoucher, Draft, Edit, VoucherReading, Vouchers};
