//! A verdict: what is known, and the rules.

mod anew;
pub mod audit;
pub mod check;
mod claims;
pub mod conditions;
mod effects;
pub mod evidence;
pub mod holds;
pub mod proof;
pub mod recovery;
pub mod rules;
pub mod stalls;
pub mod terms;
mod users;
pub mod validity;
pub mod verdict;
pub mod witness;
