//! The report as a page: one file that needs nothing else, neither a server nor the network.
//!
//! [`page`] turns a report into a view model. [`grid`] is the first screen, [`cell`] a section,
//! [`timeline`] the places of bars, [`injected_bugs`] their table, [`setup`] how a cell was
//! started. The templates beside this file turn that into HTML and escape every value. The style,
//! the script and the library that draws curves are put into the file.
//!
//! Every text of the page is a [`Text`] or a key in a template: `markup` writes its English with
//! its key beside it, and `words.js` writes the reader's language. Without JavaScript the page is
//! English, and the curves are missing; their figures are in tables.
//!
//! Its size is bounded, because what it is made of is: see [`loadtest_lab::detail`].

pub mod cell;
pub mod grid;
pub mod injected_bugs;
mod markup;
pub mod page;
pub mod round;
pub mod setup;
pub mod timeline;

use loadtest_measure::error::{Error, Result};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{AutoEscape, Environment, ErrorKind, context, escape_formatter};

use crate::html::markup::UsedTranslations;
use crate::html::page::Page;
use crate::text::{STRINGS, Text};

const TEMPLATES: [(&str, &str); 6] = [
    ("page.html", include_str!("page.html")),
    ("square.html", include_str!("square.html")),
    ("cell.html", include_str!("cell.html")),
    ("fact.html", include_str!("fact.html")),
    ("about.html", include_str!("about.html")),
    ("became.html", include_str!("became.html")),
];
/// What the library of templates answers.
type TemplateResult<T> = std::result::Result<T, minijinja::Error>;

const STYLE: [&str; 2] = [include_str!("vendor/uPlot.min.css"), include_str!("style.css")];
const SCRIPT: [&str; 4] = [
    include_str!("vendor/uPlot.iife.min.js"),
    include_str!("words.js"),
    include_str!("plots.js"),
    include_str!("page.js"),
];

/// The page as HTML.
pub fn render(page: &Page) -> Result<String> {
    let broken = |error: minijinja::Error| Error::Setup(format!("the page is broken: {error:#}"));
    let environment = environment().map_err(broken)?;
    let template = environment.get_template("page.html").map_err(broken)?;
    let (style, script) = (STYLE.join("\n"), SCRIPT.join("\n"));
    let assets = context! {
        style => Value::from_safe_string(style),
        script => Value::from_safe_string(script),
        strings => Value::from_safe_string(STRINGS.trim().to_owned()),
    };
    let text = template.render(context! { page => Serde(page), ..assets }).map_err(broken)?;
    Ok(without_indentation(&text))
}

/// The templates, in which `t("key", name=value)` is a text of the table. A text writes itself as
/// markup; for attributes there are the filters `data` (its key) and `inside` (its English).
/// `translations()` has what the texts above it need.
fn environment() -> TemplateResult<Environment<'static>> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    let used = UsedTranslations::default();
    let of_texts = used.clone();
    environment.set_formatter(move |out, state, value| match value.downcast_object_ref::<Text>() {
        Some(text) => {
            of_texts.add(text);
            Ok(out.write_str(&markup::markup(text))?)
        }
        None => escape_formatter(out, state, value),
    });
    let of_attributes = used.clone();
    environment.add_filter("data", move |value: &Value| {
        value.downcast_object_ref::<Text>().into_iter().for_each(|text| of_attributes.add(text));
        in_attribute(value, markup::data)
    });
    environment.add_function("translations", move || Value::from_safe_string(used.table()));
    environment.add_function("t", |key: String, values: Kwargs| {
        let mut text = Text::of(key);
        for name in values.args() {
            let value: Value = values.get(name)?;
            text = text.with(name.to_owned(), of_value(&value));
        }
        values.assert_all_used()?;
        Ok::<_, minijinja::Error>(Value::from_object(text))
    });
    environment.add_filter("inside", |value: &Value| in_attribute(value, markup::inside));
    for (name, source) in TEMPLATES {
        environment.add_template(name, source)?;
    }
    Ok(environment)
}

/// A value of a template as a text.
fn of_value(value: &Value) -> Text {
    let text = value.downcast_object_ref::<Text>();
    text.cloned().unwrap_or_else(|| Text::Plain(value.to_string()))
}

fn in_attribute(value: &Value, write: fn(&Text) -> String) -> TemplateResult<Value> {
    let no_text = || minijinja::Error::new(ErrorKind::InvalidOperation, "it is no text");
    let text = value.downcast_object_ref::<Text>().ok_or_else(no_text)?;
    Ok(Value::from_safe_string(write(text)))
}

/// The indentation of templates is for their authors; in a page of many cells it is a third.
fn without_indentation(text: &str) -> String {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.is_empty());
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
#[path = "html_tests.rs"]
pub(crate) mod tests;

#[cfg(test)]
#[path = "section_tests.rs"]
mod section_tests;

#[cfg(test)]
#[path = "language_tests.rs"]
pub(crate) mod language_tests;

#[cfg(test)]
#[path = "language_browser_tests.rs"]
mod language_browser_tests;

#[cfg(test)]
#[path = "browser_tests.rs"]
mod browser_tests;
