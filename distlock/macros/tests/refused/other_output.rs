extern crate self as distlock;
#[path = "../support/types.rs"]
mod types;
pub use types::*;

#[distlock_macros::locked(name = "order")]
async fn buy(locks: Locks) -> u64 {
    1
}

fn main() {}
