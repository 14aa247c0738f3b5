#[distlock_macros::locked(name = "order")]
async fn buy(user_id: u64) -> Result<(), LockError> {}

fn main() {}
