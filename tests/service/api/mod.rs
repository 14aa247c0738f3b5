//! What the API promises to its clients, route by route.

mod admin;
mod availability;
mod envelope;
mod openapi;
mod orders;
mod proxied;
mod refusals;
mod vouchers;
