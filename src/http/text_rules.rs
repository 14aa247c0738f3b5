//! Rules for the text of titles and descriptions.

use icu_properties::props::{
    BidiControl, DefaultIgnorableCodePoint, GeneralCategory, GeneralCategoryGroup,
};
use icu_properties::{CodePointMapData, CodePointSetData};

/// Blanks and placeholders that Unicode counts as letters or symbols: a Braille pattern, an
/// embedded object, Egyptian blanks, a note without a head.
const BLANKS: [char; 5] = ['\u{2800}', '\u{FFFC}', '\u{13441}', '\u{13442}', '\u{1D159}'];

/// Ends of lines and paragraphs that are not control characters.
const LINE_ENDS: [char; 2] = ['\u{2028}', '\u{2029}'];
const VISIBLE: GeneralCategoryGroup = GeneralCategoryGroup::Letter
    .union(GeneralCategoryGroup::Number)
    .union(GeneralCategoryGroup::Punctuation)
    .union(GeneralCategoryGroup::Symbol);

/// Visible characters, in the regular expressions of the API's description (ECMA-262).
const VISIBLE_PATTERN: &str = r"[\p{L}\p{N}\p{P}\p{S}]";
/// Letters and symbols of those that nothing shows. The last three stand for themselves: not every
/// reader of patterns knows an escape for them.
const BLANKS_PATTERN: &str =
    concat!(r"[\u115F\u1160\u2800\u3164\uFFA0\uFFFC", "\u{13441}\u{13442}\u{1D159}]",);
const TITLE_PATTERN: &str = concat!(
    r"[^\u0000-\u001F\u007F-\u009F\u2028\u2029",
    r"\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069]*",
);

/// The pattern of descriptions.
pub(super) const DESCRIPTION_PATTERN: &str = concat!(
    r"^[^\u0000-\u0008\u000B-\u001F\u007F-\u009F",
    r"\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069]*$",
);

/// The pattern of titles.
pub(super) fn title_pattern() -> String {
    format!("^{TITLE_PATTERN}(?!{BLANKS_PATTERN}){VISIBLE_PATTERN}{TITLE_PATTERN}$")
}

/// A title is one line with a visible character.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the validator's signature")]
pub(super) fn title(text: &str, _: &()) -> garde::Result {
    // An empty title is refused for its length.
    if !text.is_empty() && !text.chars().any(is_visible) {
        return refuse("must have a visible character");
    }
    if text.chars().any(char::is_control) {
        return refuse("must not contain control characters");
    }
    if text.contains(LINE_ENDS) {
        return refuse("must not contain line breaks");
    }
    refuse_bidi_controls(text)
}

/// A description is lines of text; tabs are allowed.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the validator's signature")]
pub(super) fn description(text: &str, _: &()) -> garde::Result {
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        return refuse("must not contain control characters other than newline and tab");
    }
    refuse_bidi_controls(text)
}

/// Bidirectional controls reorder the text around them, so a reader sees another text than is sent.
fn refuse_bidi_controls(text: &str) -> garde::Result {
    let bidi_controls = CodePointSetData::new::<BidiControl>();
    if text.chars().any(|c| bidi_controls.contains(c)) {
        return refuse("must not contain bidirectional controls");
    }
    Ok(())
}

/// Whether a character is visible; combining marks are not, since they modify the one before.
fn is_visible(c: char) -> bool {
    let category = CodePointMapData::<GeneralCategory>::new().get(c);
    let is_ignorable = CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c);
    VISIBLE.contains(category) && !is_ignorable && !BLANKS.contains(&c)
}

fn refuse(sentence: &str) -> garde::Result {
    Err(garde::Error::new(sentence))
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn the_patterns_allow_each_character_that_the_checks_accept() {
        let [visible, blank, title_part, description_text] =
            [VISIBLE_PATTERN, BLANKS_PATTERN, TITLE_PATTERN, DESCRIPTION_PATTERN]
                .map(|pattern| Regex::new(&format!("^(?:{pattern})$")).expect("a pattern"));
        // The two libraries may know different versions of Unicode.
        let unassigned = Regex::new(r"^\p{Cn}$").expect("a pattern");
        for text in (char::MIN..=char::MAX).map(String::from) {
            if unassigned.is_match(&text) {
                continue;
            }
            let c = text.chars().next().expect("a character");
            let shows = visible.is_match(&text) && !blank.is_match(&text);
            assert_eq!(shows, is_visible(c), "{c:?}");
            let of_title = format!("a{c}");
            assert_eq!(title_part.is_match(&of_title), title(&of_title, &()).is_ok(), "{c:?}");
            assert_eq!(description_text.is_match(&text), description(&text, &()).is_ok(), "{c:?}");
        }
    }
}
