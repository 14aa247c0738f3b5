//! A verdict: what is known, and the rules.

pub mod audit;
pub mod evidence;
pub mod validity;
pub mod verdict;
pub mod witness;
