//! The attribute `locked`, which the crate `distlock` exports and documents.
//!
//! - `arguments`: what stands in the parentheses;
//! - `name`: the lock's name, text with placeholders;
//! - `duration`: `"200ms"` as a number;
//! - `expand`: the function with its body under the lock.

mod arguments;
mod duration;
mod expand;
mod name;

use proc_macro::TokenStream;
use quote::ToTokens;
use syn::parse_macro_input;

/// Runs an asynchronous function under a lock. `distlock::locked` has the documentation.
#[proc_macro_attribute]
pub fn locked(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let arguments = parse_macro_input!(arguments as arguments::Arguments);
    let function = parse_macro_input!(function as syn::ItemFn);
    match expand::expand(&arguments, function) {
        Ok(function) => function.into_token_stream().into(),
        Err(error) => error.into_compile_error().into(),
    }
}
