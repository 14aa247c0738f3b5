//! The description of the API.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde_json::Value;

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
    let price = &api["paths"]["/api/vouchers/{id}/orders"]["post"]["requestBody"];
    assert_eq!(price["required"], false, "a purchase may state nothing");
    for id in ["orders_buy", "orders_list", "login_login", "vouchers_one", "admin_audit"] {
        assert!(operations.contains(id), "{id} is missing in {operations:?}");
    }
}

/// The operations of a description by their ids.
fn operations(api: &Value) -> BTreeMap<&str, &Value> {
    let items = api["paths"].as_object().expect("paths").values();
    let operations = items.flat_map(|item| item.as_object().expect("operations").values());
    operations.map(|one| (one["operationId"].as_str().expect("an id"), one)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_link_names_an_operation_and_what_that_takes() {
    let service = Service::start(&[]).await;
    let api = service.call(Method::GET, "/openapi.json", None, None).await.expect(200);
    let operations = operations(&api);
    let mut reached = BTreeSet::new();
    for (id, operation) in &operations {
        for (status, answer) in operation["responses"].as_object().expect("answers") {
            for link in answer["links"].as_object().into_iter().flat_map(|links| links.values()) {
                let what = format!("{id} {status}: {link}");
                let to = link["operationId"].as_str().expect("an operation");
                let next = operations.get(to).unwrap_or_else(|| panic!("{what}: no such one"));
                reached.insert(to);
                for name in link["parameters"].as_object().into_iter().flat_map(|map| map.keys()) {
                    let parameters = next["parameters"].as_array().expect("parameters");
                    assert!(parameters.iter().any(|it| it["name"] == **name), "{what}: {name}");
                }
                let is_sent = link["requestBody"] != Value::Null;
                assert!(!is_sent || next["requestBody"] != Value::Null, "{what}: no body");
            }
        }
    }
    for (id, operation) in &operations {
        let takes_id = operation["parameters"].as_array().is_some_and(|all| !all.is_empty());
        assert!(!takes_id || reached.contains(id), "no link leads to {id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_body_and_each_problem_has_an_example() {
    let service = Service::start(&[]).await;
    let api = service.call(Method::GET, "/openapi.json", None, None).await.expect(200);
    let mut named = BTreeSet::new();
    for (id, operation) in operations(&api) {
        let request = &operation["requestBody"]["content"]["application/json"]["schema"];
        assert!(request.is_null() || has_example(&api, request), "{id}: {request}");
        for (status, answer) in operation["responses"].as_object().expect("answers") {
            let schema = &answer["content"]["application/json"]["schema"];
            assert!(schema.is_null() || has_example(&api, schema), "{id} {status}: {schema}");
            let problem = &answer["content"]["application/problem+json"];
            if problem.is_null() {
                continue;
            }
            let examples = problem["examples"].as_object();
            let examples = examples.unwrap_or_else(|| panic!("{id} {status}: no example"));
            for (code, reference) in examples {
                let example = referred(&api, reference);
                assert_eq!(example["value"]["code"], **code, "{id} {status}");
                let stated = example["value"]["status"].to_string();
                let is_of_status = status == "default" || *status == stated;
                assert!(is_of_status, "{id} {status}: {example}");
                named.insert(reference["$ref"].as_str().expect("a reference").to_owned());
            }
        }
    }
    for name in api["components"]["examples"].as_object().expect("examples").keys() {
        assert!(named.contains(&format!("#/components/examples/{name}")), "{name} is of no answer");
    }
}

fn referred<'a>(api: &'a Value, value: &'a Value) -> &'a Value {
    let Some(reference) = value["$ref"].as_str() else { return value };
    let path = reference.strip_prefix('#').expect("of the same document");
    api.pointer(path).unwrap_or_else(|| panic!("{reference} leads nowhere"))
}

/// Whether the schema, or each field of it, says how it looks.
fn has_example(api: &Value, schema: &Value) -> bool {
    let schema = referred(api, schema);
    let all_have = |fields: &Value| {
        fields.as_object().is_some_and(|fields| {
            !fields.is_empty() && fields.values().all(|one| has_example(api, one))
        })
    };
    ["example", "examples", "const", "enum"].iter().any(|name| !schema[*name].is_null())
        || all_have(&schema["properties"])
        || (!schema["items"].is_null() && has_example(api, &schema["items"]))
        || ["oneOf", "anyOf", "allOf"].iter().any(|name| {
            schema[*name].as_array().is_some_and(|all| all.iter().any(|one| has_example(api, one)))
        })
}
