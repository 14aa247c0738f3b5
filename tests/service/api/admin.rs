//! What admins do with vouchers.

use reqwest::Method;
use seckill::domain::{MAX_STOCK, Role};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};
use tokio::task::JoinSet;

use crate::caller::contents;
use crate::support::{Answer, Service, token, voucher_body};

async fn admin(service: &Service, method: Method, path: &str, body: Option<Value>) -> Answer {
    let path = format!("/api/admin/vouchers{path}");
    service.call(method, &path, Some(&token(1, Role::Admin)), body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_voucher_is_a_draft_at_its_location_and_sells_once_on_sale() {
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
async fn two_admins_that_change_different_fields_at_once_both_succeed() {
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
async fn parallel_grants_stop_at_the_billion_and_the_others_name_the_field() {
    const ROOM: i64 = 10;
    let service: &Service = Box::leak(Box::new(Service::start(&[]).await));
    let id = service.voucher(1).await;
    let mut database = MySqlConnection::connect(&service.place.database_url).await.unwrap();
    for table in ["voucher_stock SET stock", "stock_grants SET units"] {
        let sql = format!("UPDATE {table} = {} WHERE voucher_id = {id}", MAX_STOCK - ROOM);
        database.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }
    let mut grants = JoinSet::new();
    for _ in 0..60 {
        let path = format!("/{id}/stock");
        let unit = Some(json!({"units": 1}));
        grants.spawn(async move { admin(service, Method::POST, &path, unit).await });
    }
    let answers = grants.join_all().await;
    let (added, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|a| a.status == 200);
    assert_eq!(i64::try_from(added.len()).unwrap(), ROOM);
    for answer in refused {
        assert_eq!(answer.problem(400), "invalid_body");
        assert_eq!(answer.body["field"], "units");
        let detail = answer.body["detail"].as_str().unwrap();
        assert!(detail.contains("1000000000"), "{detail}");
    }
    let audit = service.audit(&id).await;
    assert_eq!((&audit["stock_left"], &audit["consistent"]), (&json!(MAX_STOCK), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invisible_title_is_refused_with_field_and_reason() {
    let service = Service::start(&[]).await;
    let invisible = [
        "\n",
        "\n\n",
        " ",
        "\u{a0}",
        "\u{3000}",
        "\u{2003}\u{202f}",
        "\u{200b}",
        "\u{200d}\u{feff}",
        "\u{2060}",
        "\u{ad}",
        "\u{3164}",
        "\u{2800}",
        "\u{fe0f}",
        "\u{e0041}",
        "\u{202e}",
        "\u{301}",
        "\u{2067}\u{2069}",
        "\u{fffc}",
        "\u{13441}\u{13442}",
        "\u{1d159}",
    ];
    let forbidden = [
        "a\nb",
        "a\tb",
        "a\u{1b}[2J",
        "a\u{2028}b",
        "a\u{202e}b",
        "\u{2066}a\u{2069}",
        "a\u{200e}",
        "\u{200f}a",
        "\u{61c}a",
    ];
    for (titles, reason) in [(&invisible[..], "must"), (&forbidden[..], "must not contain")] {
        for title in titles {
            let mut body = voucher_body(1);
            body["title"] = json!(title);
            for (method, path, body) in
                [(Method::POST, "", body), (Method::PATCH, "/1", json!({"title": title}))]
            {
                let answer = admin(&service, method, path, Some(body)).await;
                assert_eq!(answer.problem(400), "invalid_body", "{title:?}");
                assert_eq!(answer.body["field"], "title");
                let detail = answer.body["detail"].as_str().unwrap();
                assert!(detail.contains(reason), "{title:?}: {detail}");
            }
        }
    }
    // A family is one sign of four that invisible characters join.
    for title in ["Supper", "\u{665a}\u{9910}", "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}"] {
        let mut body = voucher_body(1);
        body["title"] = json!(title);
        let created = admin(&service, Method::POST, "", Some(body)).await.expect(201);
        assert_eq!(created["voucher"]["title"], title);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_description_has_lines_and_tabs_and_no_other_control_characters() {
    let service = Service::start(&[]).await;
    let create = async |description: &str| {
        let mut body = voucher_body(1);
        body["description"] = json!(description);
        admin(&service, Method::POST, "", Some(body)).await
    };
    for description in ["", "two\nlines", "a\ttable"] {
        let created = create(description).await.expect(201);
        assert_eq!(created["voucher"]["description"], description);
    }
    for description in [
        "\r",
        "a\u{7}",
        "\u{1b}[31m",
        "\u{0}",
        "\u{85}",
        "\u{7f}",
        "a\u{202e}b",
        "\u{2066}a\u{2069}",
        "a\u{200e}",
        "\u{200f}a",
        "\u{61c}a",
    ] {
        let answer = create(description).await;
        assert_eq!(answer.problem(400), "invalid_body", "{description:?}");
        assert_eq!(answer.body["field"], "description");
    }
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
async fn a_voucher_deleted_during_purchases_is_either_sold_or_deleted() {
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
            assert_eq!(bought, 0, "a voucher that has gone was not sold");
        } else {
            assert_eq!(deleted.problem(409), "has_orders");
            assert_eq!(service.audit(&id).await["consistent"], true);
        }
    }
    let kept = contents(&service.place).await;
    assert_eq!(kept["vouchers"].0, ends[0], "of each voucher that stayed, and no other: {kept:?}");
    assert_eq!(kept["voucher_stock"].0, ends[0]);
}
