//! Orders that are written together: each caller is told what it would have been told alone.

mod answers;
mod commit;
pub(crate) mod desk;
mod outcomes;
mod replicas;
mod setbacks;
