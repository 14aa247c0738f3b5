//! The arguments of the attribute.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Ident, LitStr, Result, Token};

use crate::duration::{LEASE_MS, WAIT_MS, parse_ms};

pub(crate) struct Arguments {
    pub(crate) name: LitStr,
    /// `None`: the parameter `locks` of the function, or `self.locks`.
    pub(crate) locks: Option<Expr>,
    /// `None`: the default of `LockOptions`, as with `lease_ms`.
    pub(crate) wait_ms: Option<u64>,
    pub(crate) lease_ms: Option<u64>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut name, mut locks, mut wait, mut lease) = (None, None, None, None);
        while !input.is_empty() {
            let argument: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            match argument.to_string().as_str() {
                "name" => set(&mut name, &argument, input.parse()?)?,
                "locks" => set(&mut locks, &argument, input.parse()?)?,
                "wait" => set(&mut wait, &argument, parse_ms(&input.parse()?, &WAIT_MS)?)?,
                "lease" => set(&mut lease, &argument, parse_ms(&input.parse()?, &LEASE_MS)?)?,
                other => {
                    let text =
                        format!("unknown argument `{other}`; known: name, locks, wait, lease");
                    return Err(Error::new(argument.span(), text));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let name = name.ok_or_else(|| {
            Error::new(Span::call_site(), "the lock has no name: add `name = \"order:{user_id}\"`")
        })?;
        Ok(Self { name, locks, wait_ms: wait, lease_ms: lease })
    }
}

fn set<T>(slot: &mut Option<T>, argument: &Ident, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::new(argument.span(), format!("`{argument}` is there twice"))),
    }
}
