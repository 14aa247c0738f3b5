extern crate self as distlock;
#[path = "../support/types.rs"]
mod types;
pub use types::*;

struct PurchaseError;

#[distlock_macros::locked(name = "order")]
async fn buy(locks: Locks) -> Result<u64, PurchaseError> {
    Ok(1)
}

fn main() {}
