#[distlock_macros::locked(wait = "200ms")]
async fn buy(locks: Locks) -> Result<(), LockError> {}

fn main() {}
