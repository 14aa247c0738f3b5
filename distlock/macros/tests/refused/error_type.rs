extern crate self as distlock;
#[path = "../support/types.rs"]
mod types;
pub use types::*;

struct Refused;

#[distlock_macros::locked(name = "order")]
async fn buy(locks: Locks) -> Result<u64, Refused> {
    Ok(1)
}

fn main() {}
