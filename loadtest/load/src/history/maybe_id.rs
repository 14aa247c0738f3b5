//! An id that may be absent.

use serde::{Deserialize, Deserializer, Serializer};

#[derive(Deserialize)]
struct Id(#[serde(with = "crate::history::id")] u64);

#[allow(clippy::ref_option)]
pub(super) fn serialize<S: Serializer>(id: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => to.collect_str(id),
        None => to.serialize_none(),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Id>::deserialize(from)?.map(|id| id.0))
}
