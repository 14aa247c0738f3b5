//! The lock's name: text with placeholders.

use syn::{Error, LitStr, Member, Result};

/// The format of the name, with `{}` for each placeholder, and what replaces them.
pub(crate) struct Name {
    pub(crate) format: LitStr,
    pub(crate) placeholders: Vec<Placeholder>,
}

/// A parameter, or a field of one.
pub(crate) struct Placeholder {
    pub(crate) parameter: String,
    pub(crate) fields: Vec<Member>,
}

impl Name {
    pub(crate) fn parse(literal: &LitStr) -> Result<Self> {
        let text = literal.value();
        let refuse = |text: &str| Err(Error::new(literal.span(), text));
        if text.is_empty() {
            return refuse("the lock's name is empty");
        }
        let (mut format, mut placeholders) = (String::new(), Vec::new());
        let mut rest = text.as_str();
        while let Some(at) = rest.find(['{', '}']) {
            format.push_str(&rest[..at]);
            rest = &rest[at..];
            if rest.starts_with("{{") || rest.starts_with("}}") {
                format.push_str(&rest[..2]);
                rest = &rest[2..];
                continue;
            }
            let Some((inside, behind)) = rest.strip_prefix('{').and_then(|r| r.split_once('}'))
            else {
                return refuse("a brace has no partner; `{{` and `}}` are braces of the name");
            };
            placeholders.push(Placeholder::parse(inside, literal)?);
            format.push_str("{}");
            rest = behind;
        }
        format.push_str(rest);
        Ok(Self { format: LitStr::new(&format, literal.span()), placeholders })
    }
}

impl Placeholder {
    fn parse(text: &str, literal: &LitStr) -> Result<Self> {
        let mut parts = text.split('.');
        let parameter = parts.next().unwrap_or_default().to_owned();
        let is_word = |c: char| c == '_' || c.is_alphanumeric();
        let fields = parts.map(syn::parse_str).collect::<Result<Vec<Member>>>();
        match fields {
            Ok(fields) if !parameter.is_empty() && parameter.chars().all(is_word) => {
                Ok(Self { parameter, fields })
            }
            _ => {
                let text = format!(
                    "`{{{text}}}` is no placeholder: write a parameter or a field of one, as in \
                     `{{user_id}}` or `{{request.user_id}}`"
                );
                Err(Error::new(literal.span(), text))
            }
        }
    }
}
