#[distlock_macros::locked(name = "order", ttl = "30s")]
async fn buy(locks: Locks) -> Result<(), LockError> {}

fn main() {}
