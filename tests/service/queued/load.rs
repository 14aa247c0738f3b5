//! A load of the generator in the mode `queued`, and its history judged by the database.

use crate::judged_load::{JudgedLoad, load};
use crate::queued::buyer::service;

const STOCK: u32 = 150;
const USERS: u64 = 200;
const SAME: &str = "202 same_ticket";

#[tokio::test(flavor = "multi_thread")]
async fn a_load_follows_its_tickets_and_its_history_is_good_by_the_database_as_well() {
    let service = service(&[]).await;
    let voucher = service.voucher(STOCK).await;
    let (url, database) = (service.url.clone(), service.place.database_url.clone());
    let load = tokio::task::spawn_blocking(move || load((&url, &database), USERS, &voucher, &[]));
    let JudgedLoad { said, report, check } = load.await.expect("a load");
    let (figures, verdict) = (&report["load"], &report["vouchers"][0]["verdict"]);
    assert_eq!(figures["requests"], USERS * 3);
    let ended = |code: &str| figures["codes"][code].as_u64().unwrap_or(0);
    let codes = figures["codes"].as_object().expect("codes");
    // The other requests of a user were told of the same ticket.
    let by_ticket = codes.keys().filter(|code| code.starts_with("202") && *code != SAME);
    let admitted: u64 = by_ticket.map(|code| ended(code)).sum();
    assert_eq!(figures["queued"]["admitted"], admitted, "each has ended: {said}");
    let orders = verdict["orders"].as_u64().expect("a count");
    assert!(ended("202") > 0 && ended("202") <= orders && orders <= STOCK.into(), "{said}");
    assert!(said.contains(" admitted/s") && said.contains(" committed/s"), "{said}");
    assert_eq!((&check["ok"], &report["ok"]), (&true.into(), &true.into()), "{said}");
    service.stop().await;
}
