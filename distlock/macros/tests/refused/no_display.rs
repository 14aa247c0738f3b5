extern crate self as distlock;
#[path = "../support/types.rs"]
mod types;
pub use types::*;

struct User;

#[distlock_macros::locked(name = "order:{user}")]
async fn buy(locks: Locks, user: User) -> Result<u64, LockError> {
    Ok(1)
}

fn main() {}
