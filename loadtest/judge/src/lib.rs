//! A verdict on a sale: what is known, and the rules.
//!
//! [`evidence`] is what is known, and [`verdict`] the rules, which are pure. [`witness`] reads what
//! clients see, and [`audit`] what the database holds. [`validity`] decides whether the load was
//! real, and [`check`] judges a recorded history again.
//!
//! *Architecture invariant:* only [`audit`] reads the tables of the service.

pub mod audit;
pub mod check;
mod claims;
pub mod conditions;
mod database_reread;
mod effects;
pub mod evidence;
mod hand_off;
pub mod holds;
pub mod proof;
pub mod recovery;
pub mod rules;
pub mod setting;
pub mod stalls;
pub mod terms;
mod users;
pub mod validity;
pub mod verdict;
pub mod witness;

#[cfg(test)]
mod tests {
    use super::verdict::Rule;

    #[test]
    fn each_rule_is_on_the_page_that_says_why_it_cannot_accuse_falsely() {
        let page = include_str!("../../../docs/verdicts.md");
        for rule in Rule::ALL {
            let words = rule.words();
            assert!(page.contains(words), "docs/verdicts.md lacks: {words}");
        }
    }
}
