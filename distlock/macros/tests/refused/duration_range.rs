#[distlock_macros::locked(name = "order", wait = "25h")]
async fn wait_too_long(locks: Locks) -> Result<(), LockError> {}

#[distlock_macros::locked(name = "order", lease = "9ms")]
async fn lease_too_short(locks: Locks) -> Result<(), LockError> {}

#[distlock_macros::locked(name = "order", lease = "0s")]
async fn no_lease(locks: Locks) -> Result<(), LockError> {}

#[distlock_macros::locked(name = "order", lease = "86400001ms")]
async fn lease_too_long(locks: Locks) -> Result<(), LockError> {}

fn main() {}
