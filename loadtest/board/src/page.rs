//! The page: one file that needs nothing else. The live page reads the stream; a saved one has the
//! events of its race in it, and replays them offline.

use std::fmt::Write as _;

use clap::ValueEnum as _;
use loadtest_lab::ladder::{RUNGS, Rung};
use loadtest_lab::lock::Lock;

use crate::challenge::{CHALLENGES, Challenge};
use crate::command_sources::SourceFile;
use crate::event_log::LogSlice;
use crate::rung_race::RungLink;

const TEMPLATE: &str = include_str!("page/page.html");
/// The page of a source.
const SOURCE_TEMPLATE: &str = include_str!("page/source.html");
/// The page that a wrong token gets.
const REFUSED_TEMPLATE: &str = include_str!("page/refused.html");
const STYLE: &str = include_str!("page/style.css");
/// All texts of the page, by language.
const STRINGS: &str = include_str!("page/strings.json");
const SCRIPT: [&str; 18] = [
    include_str!("page/words.js"),
    include_str!("page/cost.js"),
    include_str!("page/server_holds.js"),
    include_str!("page/model.js"),
    include_str!("page/tiles.js"),
    include_str!("page/draw.js"),
    include_str!("page/player.js"),
    include_str!("page/bets.js"),
    include_str!("page/commands.js"),
    include_str!("page/locks.js"),
    include_str!("page/row_faults.js"),
    include_str!("page/lane.js"),
    include_str!("page/challenge.js"),
    include_str!("page/rung.js"),
    include_str!("page/announce.js"),
    include_str!("page/picture.js"),
    include_str!("page/server.js"),
    include_str!("page/page.js"),
];
/// A saved page may load nothing.
const SAVED_POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src \
    'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">";

/// The page that reads the stream. Its style and script carry the nonce.
pub(crate) fn render_live(nonce: &str) -> String {
    fill_template(&format!(" nonce=\"{nonce}\""), "", "null")
}

/// The page for an address without the token. Its style carries the nonce.
pub(crate) fn render_refused(nonce: &str) -> String {
    REFUSED_TEMPLATE.replace("{{nonce}}", nonce)
}

/// The page of one race, with all its events.
pub(crate) fn render_saved(all: &LogSlice) -> String {
    let setup = all.setup.as_deref().unwrap_or("null");
    let race = all.position.race;
    let events = &all.events;
    let data = format!("{{\"race\":{race},\"setup\":{setup},\"events\":{events}}}");
    // In JSON, `<` occurs only inside strings.
    fill_template("", SAVED_POLICY, &data.replace('<', "\\u003c"))
}

/// The page of a source, with an address for each line. Its style carries the nonce.
pub(crate) fn render_source((path, text): SourceFile, nonce: &str) -> String {
    let mut lines = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.replace('&', "&amp;").replace('<', "&lt;");
        // Writing to a string cannot fail.
        let _ = writeln!(
            lines,
            "<span id=\"L{number}\"><a href=\"#L{number}\">{number}</a> {line}</span>"
        );
    }
    let page = SOURCE_TEMPLATE.replace("{{nonce}}", nonce).replace("{{path}}", path);
    page.replace("{{lines}}", &lines)
}

fn fill_template(nonce: &str, policy: &str, saved: &str) -> String {
    let mut locks = String::new();
    for lock in Lock::value_variants() {
        let name = lock.name();
        // Writing to a string cannot fail.
        let _ = write!(locks, "<option>{name}</option>");
    }
    TEMPLATE
        .replace("{{policy}}", policy)
        .replace("{{nonce}}", nonce)
        .replace("{{locks}}", &locks)
        .replace("{{rungs}}", &rungs())
        .replace("{{challenges}}", &challenges())
        .replace("{{challenges_data}}", &serde_json::to_string(&CHALLENGES).unwrap_or_default())
        .replace("{{rungs_data}}", &rungs_data())
        .replace("{{style}}", STYLE)
        .replace("{{strings}}", STRINGS.trim())
        .replace("{{script}}", &SCRIPT.join("\n"))
        .replace("{{saved}}", saved)
}

/// The rungs of the ladder, each with a link to its race and its command.
fn rungs() -> String {
    let item = |rung: &Rung| {
        let (slug, command) = (rung.slug, rung.command());
        let link = format!("<a href=\"#rung={slug}\">{slug}</a>");
        format!("<li>{link} <span data-t=\"rung_{slug}\"></span> <code>{command}</code></li>")
    };
    RUNGS.iter().map(item).collect()
}

fn rungs_data() -> String {
    let rungs: Vec<_> = RUNGS.iter().map(RungLink::of).collect();
    serde_json::to_string(&rungs).unwrap_or_default()
}

/// The challenges, each with a link to its race.
fn challenges() -> String {
    let item = |Challenge { number, .. }: &Challenge| {
        let link = format!("<a href=\"#challenge={number}\">{number}</a>");
        format!("<li>{link} <span data-t=\"challenge_{number}\"></span></li>")
    };
    CHALLENGES.iter().map(item).collect()
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "page_browser_tests.rs"]
mod browser_tests;
