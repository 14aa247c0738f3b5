//! Addresses of servers.
//!
//! An address is a secret, since it may contain a password. It knows the setting it came from, so
//! that an error names what has to be changed.

use std::ffi::OsStr;

use clap::builder::{StringValueParser, TypedValueParser, ValueParserFactory};
use clap::parser::ValueSource;
use clap::{Arg, Command};
use secrecy::{ExposeSecret, SecretString};

/// The address of a server, or of several.
#[derive(Debug, Clone)]
pub struct Address {
    text: SecretString,
    given_as: String,
}

impl Address {
    /// The address without blanks around it; may be empty.
    pub fn expose(&self) -> &str {
        self.text.expose_secret().trim()
    }

    /// The flag or the environment variable that it came from.
    pub fn given_as(&self) -> &str {
        &self.given_as
    }

    /// Whether the setting is absent or empty.
    pub fn is_missing(address: Option<&Self>) -> bool {
        address.is_none_or(|address| address.expose().is_empty())
    }
}

impl ValueParserFactory for Address {
    type Parser = AddressParser;

    fn value_parser() -> AddressParser {
        AddressParser
    }
}

/// Parses any text as an address.
#[derive(Debug, Clone, Copy)]
pub struct AddressParser;

impl TypedValueParser for AddressParser {
    type Value = Address;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Address, clap::Error> {
        self.parse_ref_(command, arg, value, ValueSource::CommandLine)
    }

    fn parse_ref_(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
        source: ValueSource,
    ) -> Result<Address, clap::Error> {
        let text = StringValueParser::new().parse_ref(command, arg, value)?;
        let variable = arg.and_then(Arg::get_env).filter(|_| source == ValueSource::EnvVariable);
        let given_as = match variable {
            Some(variable) => variable.to_string_lossy().into_owned(),
            None => format!("--{}", arg.and_then(Arg::get_long).unwrap_or_default()),
        };
        Ok(Address { text: text.into(), given_as })
    }
}
