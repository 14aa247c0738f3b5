//! The description of the API, `/openapi.json`. Routes register with their description, so none is
//! missing there.

use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};

#[derive(OpenApi)]
#[openapi(info(
    title = "seckill",
    description = "Flash-sale vouchers. Ids are strings, times RFC 3339 in UTC, money integer \
        cents, errors problem+json with a stable `code`."
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

/// Adds what all routes have in common: who may be refused before the route is reached, the media
/// type of problems, and a description for every answer.
pub(super) fn complete(mut description: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
    for item in description.paths.paths.values_mut() {
        let PathItem { get, post, patch, delete, .. } = item;
        for operation in [get, post, patch, delete].into_iter().flatten() {
            complete_one(operation);
        }
    }
    description
}

fn complete_one(operation: &mut Operation) {
    // The handlers' names are short because their files say what they are about; so does the tag.
    if let (Some(id), Some(tag)) =
        (&mut operation.operation_id, operation.tags.iter().flatten().next())
    {
        *id = format!("{tag}_{id}");
    }
    let is_admins = operation.tags.iter().flatten().any(|tag| tag == "admin");
    let common = [
        ("401", operation.security.is_some(), "unauthorized"),
        ("403", is_admins, "forbidden: for admins"),
        ("400", true, "a field, the id or the query is wrong; `field` says which"),
        ("413", operation.request_body.is_some(), "body_too_large"),
        ("415", operation.request_body.is_some(), "not_json"),
        ("503", true, "overloaded, or a server is away; `executed` false: nothing was done"),
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
    for (status, answer) in answers {
        let RefOr::T(answer) = answer else { continue };
        let is_problem = status.as_str() >= "400";
        if answer.description.is_empty() {
            answer.description.push_str(if is_problem { "`code` says why" } else { "done" });
        }
        if is_problem && let Some(content) = answer.content.swap_remove("application/json") {
            answer.content.insert("application/problem+json".to_owned(), content);
        }
    }
}
