const USER_ID: u64 = 1;

#[distlock_macros::locked(name = "order:{USER_ID}")]
async fn no_parameter(locks: Locks) -> Result<(), LockError> {}

#[distlock_macros::locked(name = "order:{id:?}")]
async fn with_a_format(locks: Locks, id: u64) -> Result<(), LockError> {}

#[distlock_macros::locked(name = "order:{}")]
async fn without_a_name(locks: Locks, id: u64) -> Result<(), LockError> {}

#[distlock_macros::locked(name = "order:{id")]
async fn not_closed(locks: Locks, id: u64) -> Result<(), LockError> {}

fn main() {}
