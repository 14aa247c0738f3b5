#[distlock_macros::locked(name = "order", wait = "1s", wait = "2s")]
async fn buy(locks: Locks) -> Result<(), LockError> {}

fn main() {}
