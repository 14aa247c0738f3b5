//! All SQL, and the Redis side of what the service keeps: login codes, rate limits, order numbers
//! and the queues of the path `queued`.
//!
//! `session` is the only way to the database: every call has a time-out, and a connection whose
//! state is in doubt is closed, never pooled. `tables` names the tables of the sale; the other
//! files hold the statements, one subject each.

mod audit;
mod charges;
mod codes;
mod effects;
mod error;
mod groups;
mod health;
mod idempotency;
mod limits;
mod migrate;
mod order_ids;
mod orders;
mod pools;
mod replicas;
mod resolve;
mod session;
mod settle;
mod stream;
mod tables;
mod tickets;
mod unreadable;
mod users;
mod vouchers;

pub use audit::Audit;
pub use codes::{CODE_LIFE, CODES_A_DAY, Codes, Issued};
pub use effects::leave_effect;
pub use error::{Duplicate, StoreError};
pub use groups::Survey;
pub use health::{Health, Watched, keep_watch};
pub use idempotency::Kept;
pub use limits::{Limits, Rate};
pub use migrate::migrate;
pub use order_ids::OrderIds;
pub use orders::{Entry, Orders, Read};
pub use pools::{
    DatabaseOptions, RedisAddress, RedisConnection, check_database_access, check_database_address,
    database, redis, redis_later, refuse_eviction,
};
pub use replicas::Replicas;
pub use resolve::{Resolution, resolve, resolve_status};
pub use session::{CommitError, Opened, Session, Transaction};
pub use settle::{SettleError, Settlement};
pub use stream::{
    Admission, EntryEnd, Opening, Progress, Queued, QueuedOrder, Request, SaleStream, Take, Units,
    Unreadable,
};
pub use tables::SaleTables;
pub use tickets::{DeadLetter, Pass, Tickets};
pub use unreadable::PutAside;
pub use users::Users;
pub use vouchers::{Change, Draft, Edit, Vouchers};
