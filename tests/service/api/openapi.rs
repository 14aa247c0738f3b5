//! The description of the API.

use std::collections::BTreeSet;

use reqwest::Method;

use crate::support::Service;

#[tokio::test(flavor = "multi_thread")]
async fn the_description_names_each_operation_once_and_says_what_every_answer_is() {
    let service = Service::start(&[]).await;
    let api = service.call(Method::GET, "/openapi.json", None, None).await.expect(200);
    let mut operations = BTreeSet::new();
    for (path, item) in api["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let id = operation["operationId"].as_str().expect("an id");
            assert!(operations.insert(id.to_owned()), "{id} twice");
            for (status, answer) in operation["responses"].as_object().expect("answers") {
                let text = answer["description"].as_str().unwrap_or_default();
                assert!(!text.is_empty(), "{method} {path} {status}: {answer}");
                let kinds = answer["content"].as_object();
                let kind = kinds.and_then(|kinds| kinds.keys().next()).map(String::as_str);
                let expected = if status.as_str() >= "400" {
                    "application/problem+json"
                } else if path.ends_with("/events") {
                    "text/event-stream"
                } else {
                    "application/json"
                };
                assert_eq!(kind.unwrap_or(expected), expected, "{method} {path} {status}");
            }
        }
    }
    for id in ["orders_buy", "orders_list", "login_login", "vouchers_one", "admin_audit"] {
        assert!(operations.contains(id), "{id} is missing in {operations:?}");
    }
}
