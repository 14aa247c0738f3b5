//! What the page is made of.

use std::collections::BTreeSet;

use loadtest_lab::faults::ProcessState;
use serde_json::{Value, json};

use super::*;
use crate::board_error::ErrorCode;
use crate::challenge;
use crate::event_log::{EventLog, LogPosition, MAX_BYTES, Priority, RESERVE_BYTES};
use crate::lock_rows::ListState;
use crate::rung_race;
use crate::setup::RaceSetup;

/// Texts that have no Chinese word: names, values of other texts, and separators.
const WITHOUT_CHINESE: [&str; 9] = [
    "colon",
    "comma",
    "fault_asked",
    "from_redis",
    "from_sql",
    "from_zookeeper",
    "other_language",
    "phase_begin",
    "redis_of_lock",
];

/// What issue of a saved race may have at most, in bytes.
const MAX_SAVED_BYTES: usize = 1_500_000;

fn keys(language: &str) -> BTreeSet<String> {
    let all: Value = serde_json::from_str(STRINGS).expect("JSON");
    let texts = all[language].as_object().expect("a table");
    for (key, text) in texts {
        assert!(text.as_str().is_some_and(|text| !text.is_empty()), "{language}: {key}");
    }
    texts.keys().cloned().collect()
}

#[test]
fn both_languages_have_the_same_texts_with_the_same_values() {
    assert_eq!(keys("en"), keys("zh"));
    let all: Value = serde_json::from_str(STRINGS).expect("JSON");
    assert_eq!(all.as_object().map(serde_json::Map::len), Some(2), "no third language is untested");
    let values = |text: &Value| {
        let parts = text.as_str().unwrap_or_default().split('{').skip(1);
        let names = parts.filter_map(|part| part.split_once('}')).map(|(name, _)| name.to_owned());
        names.collect::<BTreeSet<_>>()
    };
    for key in keys("en") {
        assert_eq!(values(&all["en"][&key]), values(&all["zh"][&key]), "{key}");
    }
}

#[test]
fn every_chinese_text_has_a_chinese_word_unless_it_is_a_name_or_a_separator() {
    let all: Value = serde_json::from_str(STRINGS).expect("JSON");
    let is_han = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
    let without = keys("zh").into_iter().filter(|key| {
        let text = all["zh"][key].as_str();
        !text.is_some_and(|text| text.contains(is_han))
    });
    assert_eq!(without.collect::<Vec<_>>(), WITHOUT_CHINESE);
}

#[test]
fn the_fault_of_a_rung_has_the_words_of_the_ladder() {
    let all: Value = serde_json::from_str(STRINGS).expect("JSON");
    for rung in RUNGS {
        assert_eq!(all["en"][format!("rung_fault_{}", rung.slug)], rung.fault);
    }
}

#[test]
fn each_field_that_an_error_names_has_a_text() {
    let known = keys("en");
    let wrong = ["left", "right"].map(|lane| json!({lane: 1}));
    let members = ["lock", "scope", "guards", "replicas", "fenced"];
    let wrong_members = members.map(|member| json!({"left": {member: []}}));
    let others = ["seed", "users", "stock", "rung", "challenge"].map(|name| json!({name: []}));
    for value in wrong.iter().chain(&wrong_members).chain(&others).chain([&json!([])]) {
        let error = RaceSetup::parse(value).expect_err("refused");
        let field = error.value("field").and_then(Value::as_str).expect("a field");
        for part in field.split('.') {
            assert!(known.contains(part), "{value} is wrong in {field}");
        }
    }
    for field in ["lane", "action", "replica"] {
        assert!(known.contains(field), "a fault may be wrong in {field}");
    }
}

/// The words between these marks.
fn named(text: &str, before: &str, after: char) -> Vec<String> {
    let parts = text.split(before).skip(1);
    parts.filter_map(|part| part.split_once(after)).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn every_text_that_the_page_names_is_in_the_table() {
    let known = keys("en");
    let mut wanted = named(TEMPLATE, "data-t=\"", '"');
    wanted.extend(named(TEMPLATE, "data-t-label=\"", '"'));
    let script = SCRIPT.join("\n");
    wanted.extend(named(&script, " t('", '\''));
    wanted.extend(named(&script, "(t('", '\''));
    assert!(wanted.len() > 60, "{}", wanted.len());
    for key in wanted {
        assert!(known.contains(&key), "{key}");
    }
    // Those that are put together from a prefix and a name.
    let rules = loadtest_judge::verdict::Rule::ALL.map(|rule| format!("rule_{}", rule.name()));
    let faults = loadtest_lab::faults::FaultAction::ALL;
    let faults = faults.map(|action| format!("fault_{}", action.name()));
    let states = ["opening", "preparing", "running", "done", "failed"];
    let states = states.map(|state| format!("state_{state}"));
    let errors = ErrorCode::ALL.map(|code| format!("error_{}", code.name()));
    let replicas = ProcessState::ALL.map(|state| format!("replica_{}", state.name()));
    let more = ["error_no_answer", "jump_refusal"].map(str::to_owned);
    let whys = ["guarded", "none", "local_user", "local_voucher", "user", "voucher"];
    let whys = whys.map(|why| format!("why_{why}"));
    let bets = ["bet_holds", "bet_oversells", "bet_duplicates", "bet_breaks", "jump_fault"];
    let bets = bets.map(str::to_owned);
    let phases =
        ["begin", "witness", "healed", "failed", "died"].map(|phase| format!("phase_{phase}"));
    let faults_of_rungs = RUNGS.iter().filter_map(|rung| rung.broken.trial.fault);
    let rungs = RUNGS.iter().map(|rung| format!("rung_{}", rung.slug));
    let rungs = rungs.chain(faults_of_rungs.map(|fault| format!("fault_{}", fault.name())));
    let outcomes = rung_race::OUTCOMES.map(|outcome| format!("rung_outcome_{outcome}"));
    let rungs = rungs.chain(RUNGS.iter().map(|rung| format!("rung_fault_{}", rung.slug)));
    let loads = RUNGS.iter().filter(|rung| rung.broken.trial.fault.is_none());
    let loads = loads.map(|rung| format!("rung_load_{}", rung.slug));
    let rungs = rungs.chain(outcomes).chain(loads).collect::<Vec<_>>();
    let results = challenge::RESULTS.map(|result| format!("result_{result}"));
    let challenges = CHALLENGES.each_ref().map(|it| format!("challenge_{}", it.number));
    let all = [&rules[..], &faults, &states, &errors, &replicas, &more, &whys, &bets, &phases];
    let locks =
        ListState::ALL.map(|state| format!("locks_{}", json!(state).as_str().expect("a name")));
    let of_locks = ["lock_free", "lock_partial", "lock_unknown", "lock_damaged", "locks_no_answer"];
    let leases = ["no_expiry", "session", "client_clock"].map(|lease| format!("lease_{lease}"));
    let of_locks = of_locks.map(str::to_owned);
    let strips =
        ["left", "left_user", "free", "no_expiry", "silent", "none", "opening", "not_recorded"];
    let strips = strips.map(|state| format!("lease_at_{state}"));
    let origins = ["redis", "script", "sql", "zookeeper"].map(|from| format!("from_{from}"));
    let locks = [&locks[..], &of_locks, &leases].concat();
    let all = [
        all.concat(),
        results.to_vec(),
        challenges.to_vec(),
        locks,
        strips.to_vec(),
        origins.to_vec(),
    ];
    for key in all.concat().iter().chain(&rungs) {
        assert!(known.contains(key), "{key}");
    }
}

#[test]
fn the_ladder_has_every_rung_with_its_command_and_links_to_races_that_the_board_accepts() {
    let page = render_live("n1");
    for rung in RUNGS {
        assert!(page.contains(&format!("<code>{}</code>", rung.command())), "{}", rung.slug);
    }
    let links = named(&page, "<a href=\"#rung=", '"');
    assert_eq!(links.len(), RUNGS.len(), "{links:?}");
    for link in links {
        assert!(RaceSetup::parse(&json!({"rung": link})).is_ok(), "{link}");
    }
}

#[test]
fn a_saved_page_of_the_longest_race_is_one_small_file_that_loads_nothing() {
    let log = EventLog::default();
    log.begin(json!({"seed": 1}).to_string());
    let event = json!("<script>").to_string();
    while log.left_out() == 0 {
        log.push(format!("[{event},{}]", "1".repeat(200)), Priority::Begin);
    }
    log.push(json!("</script>{{script}}").to_string(), Priority::Race);
    let all = log.read(LogPosition::default(), usize::MAX).expect("all of it");
    let page = render_saved(&all);
    assert!(page.contains("\\u003c/script>"), "a text cannot end the data");
    for outside in [" src=", "@import", "url(", "://"] {
        let found = page.replace("http://127.0.0.1", "");
        assert!(!found.contains(outside), "{outside}");
    }
    // Each sign `<` of the data takes six bytes; real events have none.
    let frame = render_saved(&log_of_nothing()).len();
    assert!(frame + MAX_BYTES + RESERVE_BYTES <= MAX_SAVED_BYTES, "{frame} bytes of page");
}

fn log_of_nothing() -> LogSlice {
    let log = EventLog::default();
    log.begin("{}".to_owned());
    log.read(LogPosition::default(), usize::MAX).expect("a race")
}

#[test]
fn the_live_page_runs_only_its_own_script() {
    let page = render_live("n1");
    assert!(page.contains("<script type=\"module\" nonce=\"n1\">"));
    assert!(page.contains("<option>redisson</option>"), "every kind can be chosen");
    assert!(!page.contains("{{"), "nothing is left to fill in");
}
