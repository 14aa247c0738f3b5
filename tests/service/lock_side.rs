//! What operators see of the locks: metrics per kind, and the name of a server that is away.

use std::collections::BTreeMap;

use reqwest::Method;

use crate::support::{Service, eventually};

/// The samples of one kind: value by name and labels.
async fn samples(service: &Service, kind: &str) -> (String, BTreeMap<String, f64>) {
    let answer = service.call(Method::GET, "/metrics", None, None).await;
    let page = answer.expect(200).as_str().expect("text").to_owned();
    let label = format!("kind=\"{kind}\"");
    let lines = page.lines().filter(|line| !line.starts_with('#') && line.contains(&label));
    let samples = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        let name = name.replace(&format!("{label},"), "").replace(&label, "");
        (name, value.parse().expect("a number"))
    });
    let samples = samples.collect();
    (page, samples)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_locks_do_stands_in_the_metrics_by_kind() {
    // No other test of this binary uses the kind, and all have their metrics in common.
    let kind = "lua-release";
    let service = Service::start(&["--lock", kind, "--lab", "--work-ms", "300"]).await;
    let impatient = ["--lock", kind, "--lock-wait-ms", "0", "--allow-mixed"];
    let impatient = Service::start_at(service.place.clone(), &impatient).await;
    let voucher = service.voucher(10).await;
    let (slow, ()) = tokio::join!(service.buy(&voucher, 1), async {
        eventually("one waits in vain", async || {
            impatient.buy(&voucher, 1).await.body["code"] == "order_in_progress"
        })
        .await;
    });
    slow.expect(201);

    let (page, samples) = samples(&service, kind).await;
    let value = |name: &str| *samples.get(name).unwrap_or_else(|| panic!("no {name} in {page}"));
    for counter in ["attempts", "acquired", "busy", "timed_out"] {
        let name = format!("distlock_{counter}_total");
        assert!(value(&format!("{name}{{}}")) >= 1.0, "{page}");
        assert!(page.contains(&format!("# HELP {name} ")), "{page}");
        assert!(page.contains(&format!("# TYPE {name} counter")), "{page}");
    }
    for name in ["failed", "lost"].map(|counter| format!("distlock_{counter}_total")) {
        let unseen = samples.get(&format!("{name}{{}}")).is_none_or(|count| *count < 1.0);
        assert!(unseen, "{page}");
    }
    for histogram in ["wait", "hold"] {
        let name = format!("distlock_{histogram}_seconds");
        assert!(value(&format!("{name}_count{{}}")) >= 1.0, "{page}");
        assert!(page.contains(&format!("# TYPE {name} histogram")), "{page}");
        assert!(samples.contains_key(&format!("{name}_bucket{{le=\"0.0001\"}}")), "{page}");
    }
    assert!(value("distlock_hold_seconds_sum{}") >= 0.3, "{page}");
    let short: f64 = value("distlock_hold_seconds_bucket{le=\"0.25\"}");
    assert!(
        short < value("distlock_hold_seconds_count{}"),
        "the long hold is no short one: {page}"
    );
    assert!(!page.contains("seckill_lock"), "the same twice: {page}");
}
