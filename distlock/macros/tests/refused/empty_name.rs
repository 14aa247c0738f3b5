#[distlock_macros::locked(name = "")]
async fn buy(locks: Locks) -> Result<(), LockError> {}

fn main() {}
