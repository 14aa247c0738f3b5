//! What operators see of the locks: metrics of the kind that is in use.

use std::collections::BTreeMap;
use std::fs;

use distlock::OwnerTag;
use testbed::{Replica, ReplicaSpec};
use tokio::task::{block_in_place, spawn_blocking};

use crate::crowd::{Fate, buy_at};
use crate::fleet::SECKILL;
use crate::redis_side::RedisSide;
use crate::support::{Answer, Place, SECRET, Service, client, eventually, servers};

const KIND: &str = "redisson";
/// Work beyond a third of the lease, when it is renewed.
#[rustfmt::skip]
const LONG_WAIT_FLAGS: [&str; 9] = [
    "--lock", KIND, "--lab", "--work-ms", "5000", "--lease-ms", "12000", "--lock-wait-ms", "20000",
];
const NO_WAIT_FLAGS: [&str; 6] = ["--lock", KIND, "--lock-wait-ms", "0", "--lease-ms", "3000"];

/// A process of its own: other tests of this program have their metrics in common.
fn replica(place: &Place, flags: &[&str]) -> Replica {
    let spec = ReplicaSpec::new("measured", SECKILL)
        .args(["serve", "--bind", "127.0.0.1:0", "--drain-delay-ms", "0"])
        .args(flags.iter().copied())
        .env("DATABASE_URL", &place.database_url)
        .env("REDIS_URL", place.service_redis_url())
        .env("REDIS_TIMEOUT_MS", place.redis_timeout_ms())
        .env("JWT_SECRET", SECRET);
    block_in_place(|| servers().bed.replica(spec)).expect("a replica")
}

/// What a replica tells of its locks.
struct MetricsPage {
    page: String,
    /// Value by name and labels without the kind.
    samples: BTreeMap<String, f64>,
}

impl MetricsPage {
    async fn by(replica: &Replica) -> Self {
        let sent = client().get(format!("{}/metrics", replica.base_url())).send().await;
        let answer = Answer::of(sent.expect("an answer")).await;
        let page = answer.expect(200).as_str().expect("text").to_owned();
        let label = format!("kind=\"{KIND}\"");
        let lines = page.lines().filter(|line| !line.starts_with('#') && line.contains(&label));
        let samples = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            let name = name.replace(&format!("{label},"), "").replace(&label, "");
            (name, value.parse().expect("a number"))
        });
        let samples = samples.collect();
        Self { page, samples }
    }

    fn value(&self, name: &str) -> f64 {
        *self.samples.get(name).unwrap_or_else(|| panic!("no {name} in {}", self.page))
    }

    /// A counter, with its help and type.
    fn count(&self, counter: &str) -> f64 {
        let name = format!("distlock_{counter}_total");
        assert!(self.page.contains(&format!("# HELP {name} ")), "{}", self.page);
        assert!(self.page.contains(&format!("# TYPE {name} counter")), "{}", self.page);
        self.value(&format!("{name}{{}}"))
    }

    /// A counter that may not have been needed yet.
    fn seen(&self, counter: &str) -> f64 {
        self.samples.get(&format!("distlock_{counter}_total{{}}")).copied().unwrap_or_default()
    }

    /// How often something was measured, with its help, type and finest bucket.
    fn measured(&self, histogram: &str) -> f64 {
        let name = format!("distlock_{histogram}_seconds");
        assert!(self.page.contains(&format!("# HELP {name} ")), "{}", self.page);
        assert!(self.page.contains(&format!("# TYPE {name} histogram")), "{}", self.page);
        self.value(&format!("{name}_bucket{{le=\"0.0001\"}}"));
        self.value(&format!("{name}_count{{}}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_locks_do_stands_in_the_metrics_by_kind() {
    let place = spawn_blocking(Place::fresh).await.expect("a place");
    let admin = Service::start_at(place.clone(), &["--lock", KIND]).await;
    let voucher = admin.voucher(10).await;
    let [holder, waiter] = [(); 2].map(|()| replica(&place, &LONG_WAIT_FLAGS));
    let impatient = replica(&place, &NO_WAIT_FLAGS);
    let redis = RedisSide::connect(&place.redis_url).await;
    // One user from all sides: one purchase works, one waits for it, one times out.
    let (held, (second, vain)) = tokio::join!(buy_at(holder.base_url(), &voucher, 1), async {
        eventually("the lock is held", async || redis.has_lock(1).await).await;
        let vain = buy_at(impatient.base_url(), &voucher, 1);
        tokio::join!(buy_at(waiter.base_url(), &voucher, 1), vain)
    });
    assert!(matches!(held.fate(), Fate::Bought(_)), "{}", held.words());
    assert_eq!(second.answer.expect("an answer").problem(409), "already_ordered");
    assert_eq!(vain.answer.expect("an answer").problem(409), "order_in_progress");

    let in_vain = MetricsPage::by(&impatient).await;
    assert!(in_vain.count("attempts") >= 1.0, "{}", in_vain.page);
    assert!(in_vain.count("contended_attempts") >= 1.0, "{}", in_vain.page);
    assert!(in_vain.count("timeouts") >= 1.0, "{}", in_vain.page);

    let told = MetricsPage::by(&waiter).await;
    assert!(
        told.count("contended_attempts") >= 1.0 && told.count("acquisitions") >= 1.0,
        "{}",
        told.page
    );
    assert!(told.measured("wait") >= 1.0 && told.measured("hand_off") >= 1.0, "{}", told.page);

    let told = MetricsPage::by(&holder).await;
    let page = &told.page;
    for unseen in ["contended_attempts", "errors", "timeouts", "losses"] {
        assert!(told.seen(unseen) < 1.0, "{unseen}: {page}");
    }
    assert!(told.measured("hold") >= 1.0, "{page}");
    assert!(told.measured("renewal_delay") >= 1.0, "the work outlasts a third of a lease: {page}");
    assert!(told.value("distlock_hold_seconds_sum{}") >= 5.0, "{page}");
    let short = told.value("distlock_hold_seconds_bucket{le=\"1\"}");
    assert!(short < told.value("distlock_hold_seconds_count{}"), "it was long: {page}");
    assert!(!page.contains("seckill_lock"), "the same twice: {page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_counter_whose_first_event_is_an_alert_begins_at_zero() {
    let place = spawn_blocking(Place::fresh).await.expect("a place");
    let page = MetricsPage::by(&replica(&place, &NO_WAIT_FLAGS)).await.page;
    let rules = include_str!("../../deploy/monitoring/alerts.yml");
    let increases: Vec<_> = rules.split("increase(").skip(1).collect();
    assert!(increases.len() >= 8, "{increases:?}");
    for counter in increases {
        let (selector, _) = counter.split_once("[5m]").expect("a range");
        let (name, labels) = selector.split_once('{').unwrap_or((selector, ""));
        let labels = labels.trim_end_matches('}');
        let is_it = |line: &&str| line.starts_with(name) && line.contains(labels);
        let begins: Vec<_> = page.lines().filter(is_it).collect();
        assert!(!begins.is_empty(), "no {selector}: {page}");
        assert!(begins.iter().all(|line| line.ends_with(" 0")), "{begins:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_lost_its_lock_logs_why_and_which_owner_has_it_now() {
    let place = spawn_blocking(Place::fresh).await.expect("a place");
    let admin = Service::start_at(place.clone(), &["--lock", "lua-release"]).await;
    // The lock is the user's. The order of another voucher waits for no row of the first one.
    let (voucher, other) = (admin.voucher(10).await, admin.voucher(10).await);
    let flags = ["--lock", "lua-release", "--lab"];
    let short = [&flags[..], &["--work-ms", "5000", "--lease-ms", "1000"]].concat();
    let first = replica(&place, &short);
    // It still works when the first one, whose lease ends long before its work, has noticed.
    let patient = [&flags[..], &["--work-ms", "6000", "--lease-ms", "30000"]].concat();
    let second = replica(&place, &patient);
    let redis = RedisSide::connect(&place.redis_url).await;
    let (lost, next) = tokio::join!(buy_at(first.base_url(), &voucher, 1), async {
        eventually("the first holds the lock", async || redis.has_lock(1).await).await;
        eventually("its lease ends", async || !redis.has_lock(1).await).await;
        buy_at(second.base_url(), &other, 1).await
    });
    assert_eq!(lost.answer.expect("an answer").problem(503), "lock_lost");
    assert!(matches!(next.fate(), Fate::Bought(_)), "{}", next.words());
    let line = async || {
        let log = fs::read_to_string(first.log_path()).expect("the log");
        log.lines().find(|line| line.contains("lock was lost")).map(str::to_owned)
    };
    eventually("the loss is logged", async || line().await.is_some()).await;
    let line = line().await.expect("the line");
    let next = format!("seckill on {}, process {}", tag_host(), second.pid());
    for part in ["`lua-release` is not renewed; its lease of 1000 ms ended", &next] {
        assert!(line.contains(part), "no {part} in {line}");
    }
}

fn tag_host() -> String {
    OwnerTag::of_this_process("").host
}
