//! A verdict: what is known, and the rules.

pub mod audit;
pub mod check;
mod effects;
pub mod evidence;
pub mod proof;
pub mod rules;
mod users;
pub mod validity;
pub mod verdict;
pub mod witness;
