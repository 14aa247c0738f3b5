//! What admins do with vouchers.

use reqwest::Method;
use seckill::domain::Role;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::caller::contents;
use crate::support::{Answer, Service, token, voucher_body};

async fn admin(service: &Service, method: Method, path: &str, body: Option<Value>) -> Answer {
    let path = format!("/api/admin/vouchers{path}");
    service.call(method, &path, Some(&token(1, Role::Admin)), body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_voucher_is_a_draft_at_the_address_it_is_told_and_sells_once_on_sale() {
    let service = Service::start(&[]).await;
    let created = admin(&service, Method::POST, "", Some(voucher_body(3))).await;
    let location = created.headers["location"].to_str().unwrap().to_owned();
    let voucher = created.expect(201)["voucher"].clone();
    assert_eq!((&voucher["status"], &voucher["stock"]), (&json!("draft"), &json!(3)));
    let id = voucher["id"].as_str().expect("ids are strings").to_owned();
    assert_eq!(location, format!("/api/vouchers/{id}"));
    assert_eq!(service.buy(&id, 5).await.problem(409), "not_on_sale");

    let on_sale = admin(&service, Method::POST, &format!("/{id}/on-sale"), None).await.expect(200);
    assert_eq!(on_sale["voucher"]["status"], "on_sale");
    service.call(Method::GET, &location, None, None).await.expect(200);
    crate::support::eventually("it sells", async || service.buy(&id, 5).await.status == 201).await;
    let again = admin(&service, Method::POST, &format!("/{id}/on-sale"), None).await.expect(200);
    assert_eq!(again["voucher"]["status"], "on_sale", "twice is as good as once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_changes_what_it_names_and_nothing_else() {
    let service = Service::start(&[]).await;
    let id = service.voucher(3).await;
    let path = format!("/{id}");
    for (name, value) in [
        ("title", json!("Supper \u{1f35c}")),
        ("description", json!("")),
        ("price_cents", json!(0)),
        ("face_value_cents", json!(10_000_000_000_u64)),
        ("starts_at", json!("2021-01-01T00:00:00Z")),
        ("ends_at", json!("2121-01-01T00:00:00.123Z")),
    ] {
        let before = admin(&service, Method::PATCH, &path, Some(json!({}))).await.expect(200);
        let change = Some(json!({name: value}));
        let after = admin(&service, Method::PATCH, &path, change).await.expect(200);
        let mut expected = before["voucher"].clone();
        expected[name] = value;
        assert_eq!(after["voucher"], expected, "{name}");
    }
    let backwards = json!({"ends_at": "2020-06-01T00:00:00Z"});
    let refused = admin(&service, Method::PATCH, &path, Some(backwards)).await;
    assert_eq!(refused.problem(400), "invalid_body", "a window ends after it starts");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_admins_who_change_different_fields_at_once_both_succeed() {
    let service = Service::start(&[]).await;
    let id = service.voucher(3).await;
    let path = format!("/{id}");
    for round in 0..20 {
        let (title, price) = (json!({"title": format!("T{round}")}), json!({"price_cents": round}));
        let (title, price) = tokio::join!(
            admin(&service, Method::PATCH, &path, Some(title)),
            admin(&service, Method::PATCH, &path, Some(price)),
        );
        title.expect(200);
        price.expect(200);
        let kept = admin(&service, Method::PATCH, &path, Some(json!({}))).await.expect(200);
        assert_eq!(kept["voucher"]["title"], format!("T{round}"));
        assert_eq!(kept["voucher"]["price_cents"], round);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn added_stock_is_sold_and_shows_in_the_audit() {
    let service = Service::start(&[]).await;
    let id = service.voucher(1).await;
    service.buy(&id, 5).await.expect(201);
    assert_eq!(service.buy(&id, 6).await.problem(409), "sold_out");

    let more = Some(json!({"units": 2}));
    let voucher = admin(&service, Method::POST, &format!("/{id}/stock"), more).await.expect(200);
    assert_eq!(voucher["voucher"]["stock"], 2);
    crate::support::eventually("it sells again", async || service.buy(&id, 6).await.status == 201)
        .await;
    let expected = json!({
        "voucher_id": id, "initial_stock": 3, "stock_left": 1, "orders": 2, "cancelled": 0,
        "distinct_users": 2, "duplicate_users": 0, "oversold": 0, "consistent": true,
        "tables": {"orders": "orders", "stock": "voucher_stock", "grants": "stock_grants"},
    });
    assert_eq!(service.audit(&id).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_is_added_in_whole_units_up_to_a_billion() {
    let service = Service::start(&[]).await;
    let id = service.voucher(1).await;
    let path = format!("/{id}/stock");
    for units in [json!(0), json!(-1), json!(1_000_001), json!(1.5), json!("1"), json!(null)] {
        let refused = admin(&service, Method::POST, &path, Some(json!({"units": units}))).await;
        assert_eq!(refused.problem(400), "invalid_body", "{units}");
    }
    assert_eq!(service.audit(&id).await["initial_stock"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_without_orders_is_deleted_with_its_stock_and_grants() {
    let service = Service::start(&[]).await;
    let before = contents(&service.place).await;
    let id = service.voucher(3).await;
    admin(&service, Method::POST, &format!("/{id}/stock"), Some(json!({"units": 2}))).await;
    let deleted = admin(&service, Method::DELETE, &format!("/{id}"), None).await;
    assert_eq!(deleted.expect(204), json!(""));
    let after = contents(&service.place).await;
    assert!(after.iter().zip(&before).all(|(a, b)| a.1.0 == b.1.0), "{before:?} {after:?}");

    for (method, path) in [
        (Method::DELETE, format!("/{id}")),
        (Method::PATCH, format!("/{id}")),
        (Method::POST, format!("/{id}/on-sale")),
        (Method::POST, format!("/{id}/stock")),
        (Method::GET, format!("/{id}/audit")),
    ] {
        let body = match (&method, path.ends_with("stock")) {
            (_, true) => Some(json!({"units": 1})),
            (method, _) if *method == Method::PATCH => Some(json!({})),
            _ => None,
        };
        let gone = admin(&service, method.clone(), &path, body).await;
        assert_eq!(gone.problem(404), "voucher_not_found", "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_with_orders_stays() {
    let service = Service::start(&[]).await;
    let id = service.voucher(3).await;
    service.buy(&id, 5).await.expect(201);
    let before = contents(&service.place).await;
    let refused = admin(&service, Method::DELETE, &format!("/{id}"), None).await;
    assert_eq!(refused.problem(409), "has_orders");
    assert_eq!(contents(&service.place).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_deleted_while_people_buy_it_is_either_sold_or_gone() {
    let service: &Service = Box::leak(Box::new(Service::start(&[]).await));
    let mut ends = [0; 2];
    for round in 0..12 {
        let id = service.voucher(100).await;
        let mut buyers = JoinSet::new();
        for user in 1..=6 {
            let id = id.clone();
            buyers.spawn(async move { service.buy(&id, user).await });
        }
        // In every other round some of them have bought already.
        if round % 2 == 1 {
            buyers.join_next().await;
        }
        // Two that wait for each other are told to try again.
        let mut deleted = admin(service, Method::DELETE, &format!("/{id}"), None).await;
        for _ in 0..20 {
            if deleted.status != 503 {
                break;
            }
            deleted = admin(service, Method::DELETE, &format!("/{id}"), None).await;
        }
        let bought = buyers.join_all().await.into_iter().filter(|a| a.status == 201).count();
        let gone = deleted.status == 204;
        ends[usize::from(gone)] += 1;
        if gone {
            assert_eq!(bought, 0, "a voucher that has gone was sold to nobody");
        } else {
            assert_eq!(deleted.problem(409), "has_orders");
            assert_eq!(service.audit(&id).await["consistent"], true);
        }
    }
    let kept = contents(&service.place).await;
    assert_eq!(kept["vouchers"].0, ends[0], "of each voucher that stayed, and no other: {kept:?}");
    assert_eq!(kept["voucher_stock"].0, ends[0]);
}
