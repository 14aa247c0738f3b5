//! The service on real servers: one Redis and one database server for all tests of this binary, a
//! database of its own for each test.

mod api;
mod breakable;
mod caller;
mod cli;
mod commit;
mod comparison;
mod contention;
mod crowd;
mod every_kind;
mod faults;
mod fence;
mod fence_frozen;
mod fleet;
mod grouped;
mod hang_up;
mod late;
mod life;
mod limits;
mod lock_servers;
mod lock_side;
mod login;
mod page;
mod pool_trap;
mod pressure;
mod proxy;
mod purchase;
mod queued;
mod redis_side;
mod redis_urls;
mod replicas;
mod report;
mod security;
mod several_vouchers;
mod support;
mod wire;
