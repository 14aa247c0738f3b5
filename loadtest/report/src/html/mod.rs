//! The report as a page: one file that needs nothing else, neither a server nor the network.
//!
//! [`page`] turns a report into a view model. [`grid`] is the first screen, [`cell`] a section,
//! [`timeline`] the places of bars, [`injected_bugs`] their table, [`setup`] how a cell was
//! started. The templates beside this file turn that into HTML and escape every value. The style,
//! the script and the library that draws curves are put into the file. Without JavaScript only the
//! curves are missing; their figures are in tables.
//!
//! Its size is bounded, because what it is made of is: see [`loadtest_lab::detail`].

pub mod cell;
pub mod grid;
pub mod holds;
pub mod injected_bugs;
pub mod page;
pub mod setup;
pub mod timeline;

use loadtest_measure::error::{Error, Result};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, context};

use crate::html::page::Page;

const TEMPLATES: [(&str, &str); 5] = [
    ("page.html", include_str!("page.html")),
    ("square.html", include_str!("square.html")),
    ("cell.html", include_str!("cell.html")),
    ("fact.html", include_str!("fact.html")),
    ("about.html", include_str!("about.html")),
];
const STYLE: [&str; 2] = [include_str!("vendor/uPlot.min.css"), include_str!("style.css")];
const SCRIPT: [&str; 3] =
    [include_str!("vendor/uPlot.iife.min.js"), include_str!("plots.js"), include_str!("page.js")];

/// The page as HTML.
pub fn render(page: &Page) -> Result<String> {
    let broken = |error: minijinja::Error| Error::Setup(format!("the page is broken: {error:#}"));
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(broken)?);
    for (name, source) in TEMPLATES {
        environment.add_template(name, source).map_err(broken)?;
    }
    let template = environment.get_template("page.html").map_err(broken)?;
    let (style, script) = (STYLE.join("\n"), SCRIPT.join("\n"));
    let assets = context! {
        style => Value::from_safe_string(style),
        script => Value::from_safe_string(script),
    };
    let text = template.render(context! { page => Serde(page), ..assets }).map_err(broken)?;
    Ok(without_indentation(&text))
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
#[path = "browser_tests.rs"]
mod browser_tests;
