//! The description of the API, `/openapi.json`. Routes register with their description, so none is
//! missing there.

use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

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
