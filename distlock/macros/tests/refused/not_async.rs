#[distlock_macros::locked(name = "order")]
fn buy(locks: Locks) -> Result<(), LockError> {}

fn main() {}
