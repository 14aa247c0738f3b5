extern crate self as distlock;
#[path = "../support/types.rs"]
mod types;
pub use types::*;

struct Shop;

impl Shop {
    #[distlock_macros::locked(name = "order")]
    async fn buy(&self) -> Result<u64, LockError> {
        Ok(1)
    }
}

fn main() {}
