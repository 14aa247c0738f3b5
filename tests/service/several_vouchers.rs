//! One load on several vouchers of unequal demand, judged voucher by voucher, from the files that a
//! person would use.

use crate::judged_load::{JudgedLoad, load};
use crate::support::Service;

/// The most wanted has plenty, the least wanted too little.
const STOCKS: [u32; 3] = [1000, 1000, 30];
const USERS: u64 = 660;

#[tokio::test(flavor = "multi_thread")]
async fn several_vouchers_are_wanted_by_their_zipf_shares_and_each_is_judged_by_itself() {
    let service = Service::start(&[]).await;
    let mut vouchers = Vec::new();
    for stock in STOCKS {
        vouchers.push(service.voucher(stock).await);
    }
    let (url, database) = (service.url.clone(), service.place.database_url.clone());
    let load = move || load((&url, &database), USERS, &vouchers.join(","), &["--zipf", "1"]);
    let JudgedLoad { report, check, .. } = tokio::task::spawn_blocking(load).await.expect("a load");
    let each = report["vouchers"].as_array().expect("vouchers");
    let orders: Vec<u64> =
        each.iter().map(|one| one["verdict"]["orders"].as_u64().expect("a count")).collect();
    // 1 : 1/2 : 1/3 of 660 arrivals are 360, 180 and 120.
    assert!(orders[0].abs_diff(360) < 50 && orders[1].abs_diff(180) < 40, "{orders:?}");
    assert_eq!(orders[2], u64::from(STOCKS[2]), "sold out");
    assert_eq!(report["load"]["requests"], USERS * 3);
    for (one, stock) in each.iter().zip(STOCKS) {
        assert_eq!(one["offered"], stock, "{one}");
        let findings = one["verdict"]["findings"].as_array().expect("findings");
        let held = |name: &str| {
            let finding = findings.iter().find(|finding| finding["rule"] == name);
            finding.expect("a rule")["held"] == true
        };
        for rule in ["orders_within_stock", "one_order_per_user", "stock_adds_up", "audit_agrees"] {
            assert!(held(rule), "{rule}: {one}");
        }
    }
    assert_eq!(check["ok"], true, "{check}");
    let again = check["vouchers"].as_array().expect("vouchers").iter();
    let again: Vec<_> = again.map(|one| one["verdict"]["orders"].as_u64()).collect();
    assert_eq!(again, orders.into_iter().map(Some).collect::<Vec<_>>(), "the database says so");
    service.stop().await;
}
