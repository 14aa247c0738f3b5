//! Routes whose handlers have one type.
//!
//! For each handler's own type the compiler translates axum's way from the route to the handler
//! anew: an eighth of this crate's compile time.

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;

type HandlerFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Some handler; costs a call through a pointer.
#[derive(Clone)]
pub(super) struct AnyHandler<S>(Arc<dyn Fn(Request, S) -> HandlerFuture + Send + Sync>);

impl<S> AnyHandler<S> {
    /// Hides the handler's type.
    pub(super) fn of<T, H>(handler: H) -> Self
    where
        H: Handler<T, S, Future = HandlerFuture>,
    {
        Self(Arc::new(move |request, state| handler.clone().call(request, state)))
    }
}

impl<S: Clone + Send + Sync + 'static> Handler<(), S> for AnyHandler<S> {
    type Future = HandlerFuture;

    fn call(self, request: Request, state: S) -> HandlerFuture {
        (self.0)(request, state)
    }
}

/// What `utoipa_axum::routes!` gives for handlers of the same path, with [`AnyHandler`].
macro_rules! routes {
    ($($handler:ident),+) => {{
        use utoipa_axum::PathItemExt as _;
        let mut schemas = Vec::new();
        let mut paths = utoipa::openapi::path::Paths::new();
        let mut router = axum::routing::MethodRouter::new();
        $({
            let (path, item, methods) = utoipa_axum::routes!(@resolve_types $handler : schemas);
            for method in &methods {
                let handler = crate::http::routes::AnyHandler::of($handler);
                router = router.on(method.to_method_filter(), handler);
            }
            paths.add_path_operation(&path, methods, item);
        })+
        (schemas, paths, router)
    }};
}
pub(super) use routes;
