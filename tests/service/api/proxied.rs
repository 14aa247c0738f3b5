//! What the API promises also holds for answers that the proxy makes itself.

use reqwest::Method;
use serde_json::Value;

use crate::caller::{Caller, assert_problem};
use crate::fleet::fleet;

/// Ids that the proxy refuses, or passes to a replica that refuses them.
const ODD_IDS: [&str; 4] = ["%2F", "..%2f", "x;y", "x"];

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_of_an_operation_is_in_the_schema() {
    let fleet = fleet().await;
    for url in [fleet.proxy.url(), fleet.replicas[0].base_url()] {
        let caller = Caller::new(url);
        let schema = caller.send(caller.request(Method::GET, "/openapi.json")).await.expect(200);
        let required = schema["components"]["schemas"]["ProblemView"]["required"].as_array();
        let required = required.expect("required fields");
        assert!(required.contains(&"request_id".into()), "{required:?}");
        let mut seen = 0;
        for (path, operations) in schema["paths"].as_object().expect("paths") {
            for (method, operation) in operations.as_object().expect("operations") {
                for id in ODD_IDS.iter().filter(|_| path.contains("{id}")) {
                    let what = format!("{method} {path} {id}");
                    let method: Method = method.to_uppercase().parse().expect("a method");
                    let request = caller.request(method, &path.replace("{id}", id));
                    let answer = caller.refused(&what, request).await;
                    let responses = &operation["responses"];
                    let is_told = |status: &str| responses[status] != Value::Null;
                    assert!(is_told(answer.status.as_str()) || is_told("default"), "{what}");
                    for field in required {
                        let field = field.as_str().expect("a name");
                        assert!(!answer.body[field].is_null(), "{what}: {field}: {}", answer.body);
                    }
                    seen += 1;
                }
            }
        }
        assert!(seen >= 12 * ODD_IDS.len(), "{seen} refusals: twelve operations have an id");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_problem_has_the_clients_request_id() {
    let caller = Caller::new(fleet().await.proxy.url());
    // The first is the proxy's own, the second a replica's.
    for (path, code) in [("/metrics", "not_found"), ("/api/me", "unauthorized")] {
        for id in ["a", "\"quoted\\", "</script>", "%[src]", &"x".repeat(64)] {
            let request = caller.request(Method::GET, path).header("x-request-id", id);
            let answer = caller.refused(path, request).await;
            assert_eq!(answer.body["code"], code);
            assert_eq!(answer.body["request_id"], id, "{path}");
            assert_eq!(answer.headers.get_all("x-request-id").iter().count(), 1, "{path}");
        }
        let answer = caller.refused(path, caller.request(Method::GET, path)).await;
        assert_eq!(answer.body["request_id"].as_str().map(str::len), Some(36), "a UUID");
    }
    // A problem of another sort than a missing page: too many headers.
    let many = (0..100).fold(caller.request(Method::GET, "/livez"), |request, number| {
        request.header(format!("x-{number}"), "1")
    });
    let answer = caller.send(many.header("x-request-id", "many")).await;
    assert_eq!(answer.problem(431), "too_many_headers");
    assert_problem("too many headers", &answer);
}
