use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn table(language: &str) -> BTreeMap<String, String> {
    TextTable::of_language(language).0
}

/// The names in braces of a text.
fn names(text: &str) -> BTreeSet<&str> {
    text.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0)).collect()
}

fn outside_of_braces(text: &str) -> String {
    text.split('{').map(|part| part.split_once('}').map_or(part, |it| it.1)).collect()
}

fn is_han(c: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&c)
}

#[test]
fn both_languages_have_the_same_texts_with_the_same_values() {
    let all: BTreeMap<String, Value> = serde_json::from_str(STRINGS).expect("a table");
    assert_eq!(all.len(), 2, "no third language is untested");
    let keys = |language| table(language).into_keys().collect::<BTreeSet<_>>();
    assert_eq!(keys("en"), keys("zh"));
    let all = table("zh");
    for (key, english) in table("en") {
        let chinese = &all[&key];
        assert_eq!(names(&english), names(chinese), "{key}");
        // What stands between two sentences is nothing in Chinese.
        assert!(!english.is_empty() && (key == "gap" || !chinese.is_empty()), "{key}");
    }
    for (english, chinese) in &TRANSLATED.0 {
        assert_eq!(names(english), names(chinese), "{english}");
        let is_only_signs = !outside_of_braces(english).contains(char::is_alphabetic);
        assert!(chinese.contains(is_han) || is_only_signs, "{english}");
    }
}

#[test]
fn a_chinese_text_is_chinese_unless_it_is_only_names_and_signs() {
    let english = |text: &str| {
        let outside = text.split('{').map(|part| part.split_once('}').map_or(part, |it| it.1));
        let mut words = outside.flat_map(|part| part.split(|c: char| !c.is_alphabetic()));
        words.any(|word| word.len() > 1 && word != "ms")
    };
    for (key, chinese) in table("zh") {
        let is_chinese = chinese.contains(is_han) || key == "other_language";
        assert!(is_chinese || !english(&chinese), "{key}: {chinese}");
    }
}

#[test]
fn a_text_in_english_is_its_template_with_texts_and_numbers_in_it() {
    let cells = Text::counted("cells", 4);
    let text = Text::of("cells_as_predicted").with("cells", cells).with("good", 3_u64);
    assert_eq!(text.to_string(), "4 cells, 3 of them as predicted");
    assert_eq!(Text::counted("cells", 1).to_string(), "1 cell");
    let both = Text::joined("semicolon", [text, Text::english("agrees"), "r1".into()]);
    assert_eq!(both.to_string(), "4 cells, 3 of them as predicted; agrees; r1");
    assert_eq!(serde_json::json!([both]), serde_json::json!([both.to_string()]));
    let upper = both.map_english(|text| text.to_uppercase());
    assert!(upper.to_string().ends_with("; AGREES; r1"), "{upper}");
}

#[test]
fn a_text_that_says_something_else_gives_way_to_what_was_said() {
    let text = || Text::of("cells_1");
    assert_eq!(text().if_it_says("1 cell"), text());
    assert_eq!(text().if_it_says("one cell"), Text::english("one cell"));
}

#[test]
fn english_is_found_whole_with_the_values_in_it_and_a_value_is_one_word() {
    let found = |text| translation(text).map(|(english, values)| (english.to_owned(), values));
    let whole = "every ticket ends".to_owned();
    assert_eq!(found("every ticket ends"), Some((whole, vec![])));
    let pattern = "{orders} orders, {units} units".to_owned();
    let values = vec![("orders", "161"), ("units", "160")];
    assert_eq!(found("161 orders, 160 units"), Some((pattern, values)));
    assert_eq!(found("161 orders, 160 units and more"), None);
    assert_eq!(found("in all 161 orders, 160 units"), None);
    assert_eq!(found("orders, 160 units"), None);
    let (_, values) = found("user 7 holds 2 orders: 12, 13").expect("a pattern");
    assert_eq!(values, [("user", "7"), ("count", "2"), ("words", "12, 13")]);
}

/// The Chinese, with what is English in it in brackets.
fn chinese(text: &str) -> Option<String> {
    let shown = in_chinese(text)?.into_iter().map(|part| match part {
        ChinesePart::Chinese(chinese) => chinese,
        ChinesePart::English { en } => format!("[{en}]"),
    });
    Some(shown.collect())
}

#[test]
fn chinese_of_clauses_and_of_words_inside_names_what_stays_english() {
    let told = |text| chinese(text).unwrap_or_else(|| panic!("{text} has none"));
    assert_eq!(told("161 orders, 160 units"), "161 个订单，库存 160");
    let flushed = "FLUSHALL removed 9 keys, 1 of them locks; a COMMIT was on the way for 12 ms, \
                   and another purchase wrote meanwhile";
    let said =
        "FLUSHALL 删除了 9 个键，其中 1 个是锁；一次 COMMIT 在途 12 ms，其间另一个购买写入了";
    assert_eq!(told(flushed), said);
    assert_eq!(told("fault kill: r1 is no more"), "故障 kill：[r1 is no more]");
    let broken = "broken: no user bought twice (3 users hold more than one order)";
    assert_eq!(told(broken), "违反：没有用户重复下单（3 个用户有不止一个订单）");
    let request = "request 17 of user 5, 0.100000 s to 0.250000 s: 201 from r2, order 9; its lock \
                   0.110000 s to 0.240000 s";
    let said = "用户 5 的请求 17，0.100000 s 到 0.250000 s：r2 应答 201，订单 9；\
                持有锁 0.110000 s 到 0.240000 s";
    assert_eq!(told(request), said);
    let killed = "r2 was process 7 and is 9, with the lock";
    assert_eq!(told(killed), "r2 原为进程 7，持有锁，现为进程 9");
    assert_eq!(told("agrees; all is well"), "一致；[all is well]");
    assert_eq!((chinese("all is well"), chinese("all; is well")), (None, None));
}

/// Tests of other modules look at the English.
impl PartialEq<&str> for Text {
    fn eq(&self, english: &&str) -> bool {
        let own = self.to_string();
        own == **english
    }
}
