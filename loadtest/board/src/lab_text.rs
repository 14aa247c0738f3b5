//! What the judge and the laboratory say, for readers of both languages.

use loadtest_report::text::{ChinesePart, in_chinese};
use serde_json::{Value, json};

/// The English, or an object of it and of its Chinese in parts: texts, and `{"en": text}` where a
/// part has no Chinese. The full stop of a sentence is none of the table.
pub(crate) fn lab_text(english: &str) -> Value {
    let (sentence, stop) = match english.strip_suffix('.') {
        Some(sentence) => (sentence, "。"),
        None => (english, ""),
    };
    let Some(mut chinese) = in_chinese(sentence.trim_start()) else { return json!(english) };
    if !stop.is_empty() {
        chinese.push(ChinesePart::Chinese(stop.to_owned()));
    }
    json!({"en": english, "zh": chinese})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_its_chinese_beside_it_and_keeps_english_that_has_none() {
        let text = "  1 orders, 2 units";
        assert_eq!(lab_text(text), json!({"en": text, "zh": ["1 个订单，库存 2"]}));
        let died = "replica r1 and r2 died.";
        let chinese = json!(["副本 ", {"en": "r1 and r2"}, " 自行退出", "。"]);
        assert_eq!(lab_text(died), json!({"en": died, "zh": chinese}));
        assert_eq!(lab_text("no such thing."), json!("no such thing."));
    }
}
