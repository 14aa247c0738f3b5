#[distlock_macros::locked(name = "order")]
async fn buy(locks: Locks) {}

fn main() {}
