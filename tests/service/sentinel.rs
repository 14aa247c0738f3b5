//! A service whose Redis has replicas, and sentinels that make one of them the master.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testbed::{RedisOptions, RedisSentinel, Replica, SentinelOptions};

use crate::breakable::blocking;
use crate::caller::Caller;
use crate::crowd::{Books, Crowd, Fate, buy_at};
use crate::fleet::{SECKILL, start_together};
use crate::replicas::spec;
use crate::support::{Place, least_rights, servers, token};
use seckill::domain::Role;

const STOCK: u32 = 5000;
/// How soon after the promotion a replica sells: its connections follow within 2 s, and it looks
/// three times a second whether Redis is there.
const SELLS_WITHIN: Duration = Duration::from_secs(3);

async fn group(tls: bool) -> RedisSentinel {
    let redis = RedisOptions {
        user: Some("seckill".to_owned()),
        rights: Some(least_rights() + " +role"),
        tls,
        ..RedisOptions::default()
    };
    let options = SentinelOptions { redis, guarded: false };
    let starting = tokio::task::spawn_blocking(move || servers().bed.redis_sentinel(options));
    starting.await.expect("no panic").expect("Redis is installed")
}

/// Waits until the replica sells again.
async fn until_sold(replica: &Replica, voucher: &str, users: &mut u64) {
    let began = Instant::now();
    loop {
        *users += 1;
        let one = buy_at(replica.base_url(), voucher, *users).await;
        if let Fate::Bought(_) = one.fate() {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "it never sells: {}", one.words());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_sell_after_a_failover_and_a_restart_of_the_former_master() {
    let group = group(false).await;
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let place = Place { redis_url: group.url(), ..place };
    let named = |name| spec(&place, name, &["--lock", "redisson", "--drain-delay-ms", "0"]);
    let replicas = blocking(|| Ok(start_together(["seller-1", "seller-2"].map(named))));
    let voucher = Caller::new(replicas[0].base_url()).voucher(STOCK).await;
    let crowd = Crowd::start(replicas[0].base_url(), &voucher, 4);
    crowd.until_bought(10).await;
    blocking(|| group.nodes()[0].kill());
    let (_, promoted) = blocking(|| group.await_promotion(0));
    let mut users = 100;
    for replica in &replicas {
        until_sold(replica, &voucher, &mut users).await;
        let after = promoted.elapsed();
        assert!(after < SELLS_WITHIN, "{} sold {after:?} after the promotion", replica.name());
    }
    crowd.until_bought(10).await;
    blocking(|| group.nodes()[0].restart());
    crowd.until_bought(10).await;
    blocking(|| group.await_demotion(0));
    crowd.until_bought(10).await;
    let tries = crowd.end().await;
    let books = Books::read(&place.database_url, &voucher).await;
    books.bear_out(&tries);
    books.add_up_to(STOCK.into());
    let path = format!("/api/admin/vouchers/{voucher}/audit");
    let audit = Caller::new(replicas[1].base_url()).get(&path, &token(1, Role::Admin)).await;
    assert_eq!(audit.expect(200)["consistent"], true);
    // The command finds the new master as well.
    let line = ["lock", "run", "--kind", "lua-release", "--name", "a", "--", "/bin/echo", "in"];
    let mut command = Command::new(SECKILL);
    command.args(line).env_clear().env("REDIS_URL", group.url().replace("seckill:", ":"));
    let output = command.output().expect("the program");
    assert_eq!(output.stdout, b"in\n", "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_asks_sentinels_again_that_stand_still_for_a_moment() {
    let group = group(false).await;
    let still = &group.sentinels()[..2];
    for sentinel in still {
        blocking(|| sentinel.freeze());
    }
    let line = ["lock", "run", "--kind", "lua-release", "--name", "a", "--", "/bin/echo", "in"];
    let mut command = Command::new(SECKILL);
    command.args(["--log", "seckill=debug"]).args(line).env_clear();
    command.env("REDIS_URL", group.url().replace("seckill:", ":"));
    let starting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut starting = starting.expect("the program");
    blocking(|| -> testbed::Result<()> {
        let mut log = BufReader::new(starting.stderr.take().expect("a log"));
        let mut said = String::new();
        while !said.contains("asking Redis again") {
            let count = log.read_line(&mut said).expect("its log");
            assert_ne!(count, 0, "it ended: {said}");
        }
        still.iter().try_for_each(|sentinel| sentinel.thaw())?;
        log.read_to_string(&mut said).expect("its log");
        let mut printed = String::new();
        starting.stdout.take().expect("stdout").read_to_string(&mut printed).expect("UTF-8");
        assert_eq!(printed, "in\n", "{said}");
        assert!(starting.wait().expect("its end").success(), "{said}");
        Ok(())
    });
}

/// A frozen master keeps its connections open: nothing but silence tells that it is away. After the
/// thaw it takes itself for the master until the sentinels reach it.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_sell_by_tls_after_their_master_froze_and_do_not_trust_it_after_the_thaw() {
    let group = group(true).await;
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let place = Place { redis_url: group.url(), ..place };
    assert!(place.redis_url.starts_with("rediss+sentinel://"), "{}", place.redis_url);
    let ca = group.nodes()[0].ca_path().expect("an authority").display().to_string();
    let flags = ["--lock", "redisson", "--drain-delay-ms", "0", "--redis-ca-file", &ca];
    let named = |name| spec(&place, name, &flags);
    let replicas = blocking(|| Ok(start_together(["seller-3", "seller-4"].map(named))));
    let voucher = Caller::new(replicas[0].base_url()).voucher(STOCK).await;
    let crowd = Crowd::start(replicas[0].base_url(), &voucher, 4);
    crowd.until_bought(10).await;
    blocking(|| group.nodes()[0].freeze());
    let (_, promoted) = blocking(|| group.await_promotion(0));
    let mut users = 100;
    for replica in &replicas {
        until_sold(replica, &voucher, &mut users).await;
        let after = promoted.elapsed();
        assert!(after < SELLS_WITHIN, "{} sold {after:?} after the promotion", replica.name());
    }
    blocking(|| group.nodes()[0].thaw());
    crowd.until_bought(10).await;
    blocking(|| group.await_demotion(0));
    crowd.until_bought(10).await;
    let tries = crowd.end().await;
    let books = Books::read(&place.database_url, &voucher).await;
    books.bear_out(&tries);
    books.add_up_to(STOCK.into());
}
