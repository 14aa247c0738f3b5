//! Logging in: codes that are sent to phones, and the tokens they are exchanged for.

mod claims;
mod codes;
mod mint;
mod mutants;
