//! The description of the API, `/openapi.json`. Routes register with their description, so none is
//! missing there. `schemas` says what fields may be, `links` what follows an answer, `problems` how
//! each problem looks.

mod links;
mod problems;
pub(super) mod schemas;

use std::collections::BTreeMap;

use bytes::Bytes;
use utoipa::OpenApi;
use utoipa::openapi::example::ExampleBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, ContentBuilder, Ref, RefOr, Required, Response, ResponseBuilder};

use self::links::LINKS;
use self::problems::ProblemExample;

/// Operations whose body may be left out.
const OPTIONAL_BODIES: [&str; 1] = ["orders_buy"];

#[derive(OpenApi)]
#[openapi(info(
    title = "seckill",
    description = "Flash-sale vouchers. Ids are strings, times RFC 3339 in UTC, money integer \
        cents, errors problem+json with a stable `code`. Only what is no HTTP request is answered \
        otherwise, by the proxy: 400 or 408 with a page of HTML. What is `deprecated` here works \
        for one more version at least."
))]
struct Description;

/// The frame to which the routes add themselves.
pub(super) fn description() -> utoipa::openapi::OpenApi {
    let mut description = Description::openapi();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build();
    let mut components = description.components.take().unwrap_or_default();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    description.components = Some(components);
    description
}

/// The description of these routes as JSON, the longest answer there is: so it is written once.
pub(super) fn written(description: utoipa::openapi::OpenApi) -> Bytes {
    // Texts and trees of them can always be written to memory.
    serde_json::to_vec(&complete(description)).unwrap_or_default().into()
}

/// Adds what all routes have in common: refusals before the route is reached, the media
/// type of problems, and a description for every answer. Links and examples follow.
fn complete(mut description: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
    let examples = problems::examples();
    for item in description.paths.paths.values_mut() {
        let PathItem { get, post, patch, delete, .. } = item;
        for operation in [post, patch].into_iter().flatten() {
            complete_one(operation, true, &examples);
        }
        for operation in [get, delete].into_iter().flatten() {
            complete_one(operation, false, &examples);
        }
    }
    let components = description.components.get_or_insert_default();
    for ProblemExample { status, code, body } in examples {
        let example = ExampleBuilder::new().value(Some(body)).build();
        components.examples.insert(example_name(status, code), example.into());
    }
    description
}

fn complete_one(operation: &mut Operation, reads_body: bool, examples: &[ProblemExample]) {
    // The handlers' names are short because their files say what they are about; so does the tag.
    if let (Some(id), Some(tag)) =
        (&mut operation.operation_id, operation.tags.iter().flatten().next())
    {
        *id = format!("{tag}_{id}");
    }
    let is_admins = operation.tags.iter().flatten().any(|tag| tag == "admin");
    let takes = |name: &str| {
        let mut parameters = operation.parameters.iter().flatten();
        parameters.any(|it| matches!(it, RefOr::T(it) if it.name == name))
    };
    let has_body = operation.request_body.is_some();
    let is_optional =
        operation.operation_id.as_deref().is_some_and(|id| OPTIONAL_BODIES.contains(&id));
    if is_optional && let Some(RefOr::T(body)) = &mut operation.request_body {
        body.required = Some(Required::False);
    }
    let parts = [
        (reads_body, "invalid_body"),
        (takes("id"), "invalid_id"),
        (takes("Idempotency-Key"), "invalid_header"),
        (takes("limit"), "invalid_query"),
    ];
    let invalid: Vec<_> = parts.iter().filter(|part| part.0).map(|part| part.1).collect();
    let invalid_text = format!("{}: `field` says what is wrong", invalid.join(", "));
    let common = [
        ("400", !invalid.is_empty(), invalid_text.as_str()),
        ("401", operation.security.is_some(), "unauthorized"),
        ("403", is_admins, "forbidden: for admins"),
        ("413", has_body, "body_too_large"),
        ("415", has_body, "not_json, or body_encoded: `Content-Encoding`"),
        ("503", true, "overloaded, or dependency_unavailable: `executed` false, nothing was done"),
        (
            "default",
            true,
            "any other problem: method_not_allowed, body_too_slow, \
            internal; also one of the proxy",
        ),
    ];
    let answers = &mut operation.responses.responses;
    for (status, applies, text) in common {
        if applies && !answers.contains_key(status) {
            let problem = Ref::from_schema_name("ProblemView");
            let content = ContentBuilder::new().schema(Some(problem)).build();
            let answer =
                ResponseBuilder::new().description(text).content("application/json", content);
            answers.insert(status.to_owned(), RefOr::T(answer.build()));
        }
    }
    let id = operation.operation_id.as_deref().unwrap_or_default();
    for (status, answer) in answers {
        let RefOr::T(answer) = answer else { continue };
        complete_answer(answer, (id, status), examples);
    }
}

fn complete_answer(
    answer: &mut Response,
    (operation, status): (&str, &str),
    examples: &[ProblemExample],
) {
    let is_problem = status >= "400";
    if answer.description.is_empty() {
        answer.description.push_str(if is_problem { "`code` says why" } else { "done" });
    }
    for follow in LINKS.iter().filter(|follow| follow.from == (operation, status)) {
        answer.links.insert(follow.to.to_owned(), follow.link().into());
    }
    if matches!(status, "201" | "202") && operation != "login_send_code" {
        let header = HeaderBuilder::new()
            .schema(Some(schemas::address()))
            .description(Some("where it is"))
            .build();
        answer.headers.insert("Location".to_owned(), header.into());
    }
    if is_problem && let Some(content) = answer.content.swap_remove("application/json") {
        let content = with_examples(content, (&answer.description, status), examples);
        answer.content.insert("application/problem+json".to_owned(), content);
    }
}

/// The content with an example for each code that the description of the answer names.
fn with_examples(
    content: RefOr<Content>,
    (description, status): (&str, &str),
    examples: &[ProblemExample],
) -> RefOr<Content> {
    let RefOr::T(mut content) = content else { return content };
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let names = |code: &str| description.split(|c| !is_part(c)).any(|word| word == code);
    let fits = |example: &&ProblemExample| {
        names(example.code) && (status == "default" || example.status.to_string() == status)
    };
    content.examples = examples
        .iter()
        .filter(fits)
        .map(|example| {
            let name = example_name(example.status, example.code);
            let reference = Ref::new(format!("#/components/examples/{name}"));
            (example.code.to_owned(), RefOr::Ref(reference))
        })
        .collect::<BTreeMap<_, _>>();
    RefOr::T(content)
}

fn example_name(status: u16, code: &str) -> String {
    format!("{status}-{code}")
}
