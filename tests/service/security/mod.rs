//! Attacks, by the classes of OWASP's ASVS and API Top 10. Whatever is sent: a status 4xx, never
//! 5xx, no word too many, and not a row in the database that was not there before.

mod access;
mod injection;
mod leaks;
mod races;
mod schema;
mod sizes;
mod slow;
mod smuggling;
mod trail;
mod trail_of_changes;
mod unread;
