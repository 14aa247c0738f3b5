//! Logging in: codes that are sent to phones, and the tokens they are exchanged for.

mod claims;
mod codes;
mod migrated;
mod mint;
mod mutants;
mod outbox;
mod outbox_stdout;
mod phones;
mod revoked;
mod strangers;
