//! A Redis replica that lags: what its master sends is lost on the link between them.
//!
//! ```sh
//! cargo run -p testbed --example lagging_replica
//! ```

use testbed::{Bed, Direction, Proxy, RedisMaster, RedisOptions, Result};

fn main() -> Result<()> {
    let bed = Bed::start()?;
    let master = bed.redis(RedisOptions::default())?;
    master.command(&["SET", "before", "1"])?;

    let link = Proxy::before(master.addr())?;
    let through_link = RedisMaster { addr: link.addr(), ..master.as_master() };
    let options = RedisOptions { replica_of: Some(through_link), ..RedisOptions::default() };
    let replica = bed.redis(options)?;

    link.set_swallowing(Direction::ToClient, true);
    master.command(&["SET", "after", "1"])?;
    master.kill()?;
    replica.promote()?;
    for key in ["before", "after"] {
        println!("the new master has {key}: {}", replica.command(&["EXISTS", key])?.trim());
    }
    Ok(())
}
