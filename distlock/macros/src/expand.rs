//! The function with its body under the lock.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::visit_mut::VisitMut;
use syn::{
    Error, ItemFn, PatIdent, Receiver, Result, ReturnType, Signature, Type, parse_quote,
    parse_quote_spanned,
};

use crate::arguments::Arguments;
use crate::name::Name;

/// Local variables of this span are not those of the body, and neither sees the other.
fn hygienic() -> Span {
    Span::mixed_site()
}

pub(crate) fn expand(arguments: &Arguments, mut function: ItemFn) -> Result<ItemFn> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new_spanned(signature.fn_token, "`locked` needs an `async fn`"));
    }
    let output = output(signature)?;
    let parameters = Parameters::of(signature);
    let locks = locks(arguments, &parameters, signature)?;
    let name = name(arguments, &parameters)?;
    let milliseconds = |ms| quote_spanned!(hygienic()=> ::core::time::Duration::from_millis(#ms));
    let wait = arguments.wait_ms.map(milliseconds);
    let wait = wait.unwrap_or_else(|| {
        quote_spanned! {hygienic()=>
            <::distlock::LockOptions as ::core::default::Default>::default().wait
        }
    });
    let lease = arguments.lease_ms.map(milliseconds);
    let lease = lease
        .unwrap_or_else(|| quote_spanned!(hygienic()=> ::distlock::LockOptions::WATCHDOG_LEASE));
    // An error of the return type stands there, and not at the whole attribute.
    let question = quote_spanned!(hygienic().located_at(output.span())=> ?);
    let body = &function.block;
    // `locks` is a clone: the body may move what has the locks. The first statement of the block
    // tells the compiler its type, as the signature does for the body of a function.
    function.block = parse_quote_spanned! {hygienic()=> {
        let locks = <::distlock::Locks as ::core::clone::Clone>::clone(&#locks);
        let name = ::distlock::LockName::new(#name)#question;
        let options = ::distlock::LockOptions::new(#wait, locks.guarantees().lease(#lease));
        locks.run(&name, &options, async move {
            if let ::core::option::Option::Some(output) = ::core::option::Option::None::<#output> {
                return output;
            }
            #body
        }).await #question
    }};
    Ok(function)
}

/// The type that the body has. What the compiler has to find out itself is `_`.
fn output(signature: &Signature) -> Result<Type> {
    let ReturnType::Type(_, output) = &signature.output else {
        let text = "`locked` needs a function that returns a `Result`, whose error is made \
                    `From<distlock::LockError>`";
        return Err(Error::new_spanned(&signature.ident, text));
    };
    let mut output = Type::clone(output);
    InferOpaque.visit_type_mut(&mut output);
    Ok(output)
}

/// Writes `_` for each `impl Trait`, which only a signature may have.
struct InferOpaque;

impl VisitMut for InferOpaque {
    fn visit_type_mut(&mut self, of: &mut Type) {
        if matches!(of, Type::ImplTrait(_)) {
            *of = parse_quote!(_);
        }
        syn::visit_mut::visit_type_mut(self, of);
    }
}

/// The names that the signature binds, `self` among them.
#[derive(Default)]
struct Parameters(Vec<Ident>);

impl Parameters {
    fn of(signature: &Signature) -> Self {
        let mut parameters = Self::default();
        signature.inputs.iter().for_each(|input| parameters.visit_fn_arg(input));
        parameters
    }

    fn find(&self, name: &str) -> Option<&Ident> {
        self.0.iter().find(|parameter| parameter.unraw() == name)
    }
}

impl<'a> Visit<'a> for Parameters {
    fn visit_receiver(&mut self, receiver: &'a Receiver) {
        self.0.push(Ident::new("self", receiver.self_token.span));
    }

    fn visit_pat_ident(&mut self, pattern: &'a PatIdent) {
        self.0.push(pattern.ident.clone());
        syn::visit::visit_pat_ident(self, pattern);
    }
}

/// The expression that has the locks.
fn locks(
    arguments: &Arguments,
    parameters: &Parameters,
    signature: &Signature,
) -> Result<TokenStream> {
    if let Some(locks) = &arguments.locks {
        return Ok(locks.to_token_stream());
    }
    if let Some(parameter) = parameters.find("locks") {
        return Ok(parameter.to_token_stream());
    }
    if let Some(receiver) = parameters.find("self") {
        return Ok(quote_spanned!(receiver.span()=> #receiver.locks));
    }
    let text = "where are the `Locks`? Add `locks = ...`, a parameter `locks`, or a `self` with a \
                field `locks`";
    Err(Error::new_spanned(&signature.ident, text))
}

/// The expression that makes the text of the lock's name.
fn name(arguments: &Arguments, parameters: &Parameters) -> Result<TokenStream> {
    let literal = &arguments.name;
    let Name { format, placeholders } = Name::parse(literal)?;
    let mut values = Vec::new();
    for placeholder in &placeholders {
        let Some(parameter) = parameters.find(&placeholder.parameter) else {
            let text = format!("the function has no parameter `{}`", placeholder.parameter);
            return Err(Error::new(literal.span(), text));
        };
        // The parameter's name, at the place of the literal: errors of its type stand there.
        let mut parameter = parameter.clone();
        parameter.set_span(parameter.span().located_at(literal.span()));
        let fields = &placeholder.fields;
        values.push(quote_spanned!(literal.span()=> #parameter #(.#fields)*));
    }
    Ok(quote_spanned!(literal.span()=> ::std::format!(#format #(, #values)*)))
}
