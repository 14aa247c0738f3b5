#[distlock_macros::locked(name = "order", wait = "200 ms")]
async fn wait_with_space(locks: Locks) -> Result<(), LockError> {}

#[distlock_macros::locked(name = "order", lease = "30")]
async fn lease_without_unit(locks: Locks) -> Result<(), LockError> {}

#[distlock_macros::locked(name = "order", lease = "1.5s")]
async fn lease_with_fraction(locks: Locks) -> Result<(), LockError> {}

#[distlock_macros::locked(name = "order", lease = "20000000000000000h")]
async fn lease_too_long(locks: Locks) -> Result<(), LockError> {}

#[distlock_macros::locked(name = "order", wait = "+5s")]
async fn wait_with_sign(locks: Locks) -> Result<(), LockError> {}

fn main() {}
