//! Parameters of a path or a query, and times. A refusal names the parameter and its limit.

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use time::PrimitiveDateTime;
use time::format_description::StaticFormatDescription;
use time::macros::format_description;

use super::DianpingState;
use super::envelope::DianpingFailure;
use crate::domain::VoucherId;

const TIME: StaticFormatDescription = format_description!(
    "[year]-[month]-[day]T[hour]:[minute][optional [:[second][optional [.[subsecond]]]]]"
);

/// The number in the path, from 1 on.
pub(super) struct PathNumber(pub(super) u64);

/// The parameters of the query; unknown ones are ignored, as hm-dianping does.
pub(super) struct QueryParams(HashMap<String, String>);

impl FromRequestParts<DianpingState> for PathNumber {
    type Rejection = DianpingFailure;

    async fn from_request_parts(
        parts: &mut Parts,
        api: &DianpingState,
    ) -> Result<Self, DianpingFailure> {
        let text = Path::<String>::from_request_parts(parts, api).await;
        let text = text.map(|Path(text)| text).unwrap_or_default();
        let VoucherId(id) =
            text.parse().map_err(|error| DianpingFailure::because(format!("id: {error}")))?;
        Ok(Self(id))
    }
}

impl FromRequestParts<DianpingState> for QueryParams {
    type Rejection = DianpingFailure;

    async fn from_request_parts(
        parts: &mut Parts,
        api: &DianpingState,
    ) -> Result<Self, DianpingFailure> {
        let params = Query::from_request_parts(parts, api).await;
        let Query(params) = params.map_err(|_| {
            DianpingFailure::because("query: must be of the form name=value&name=value")
        })?;
        Ok(Self(params))
    }
}

impl QueryParams {
    /// The text of a parameter; an empty one is absent.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// A number in that range, if the parameter is there.
    pub(super) fn number<T: FromStr + PartialOrd + Display>(
        &self,
        name: &str,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, DianpingFailure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        let (low, high) = range.into_inner();
        let refusal =
            || DianpingFailure::because(format!("{name}: must be a number from {low} to {high}"));
        number.map(Some).ok_or_else(refusal)
    }

    /// The number of a page, counted from 1.
    pub(super) fn page(&self) -> Result<u32, DianpingFailure> {
        Ok(self.number("current", 1..=10_000)?.unwrap_or(1))
    }
}

/// A time without zone.
pub(super) fn time(name: &str, text: &str) -> Result<PrimitiveDateTime, DianpingFailure> {
    PrimitiveDateTime::parse(text, TIME).map_err(|_| {
        DianpingFailure::because(format!("{name}: must be a time, as 2026-11-26T10:00:00"))
    })
}
