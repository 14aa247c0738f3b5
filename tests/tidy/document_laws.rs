//! Laws of documents, names and prose.

use crate::law::{Law, laws};
use crate::{REPOSITORY, assets, docs, languages, links, test_names, words};

laws! {
    tests_that_the_pages_of_locks_and_faults_name_exist: docs::named_tests_exist,
    breaks: [
        ("docs/locks/a.md", "| a report | `redlock`: `a_test_that_nobody_wrote` |"),
        ("docs/locks/a.md", "| a report | `redlock`: `of_it_a_b`; `tulips::a_test_that_is_gone` |"),
        ("docs/locks/a.md", "| a report | `tulips`: all of it |"),
        ("docs/faults.md", "| 1 | a fault | `redlock::a_test_that_nobody_wrote` |"),
    ],
    keeps: [("docs/locks/a.md", "| a report | `Guard::lost`; cannot be ours |\nIn `a_b_c_d`.")];

    tests_that_documents_quote_exist: docs::quoted_tests_exist,
    breaks: [
        ("docs/a.md", "Tested (`a_lost_lock_is_lost`): `locks::a_lost_lock_is_lost`."),
        ("SECURITY.md", "```\n```\n`a_test_of_five_words_or_more`"),
        ("src/a.rs", "//! Tests: `a_test_of_five_words_or_more`\n#[test]\nfn a_b_c() {}"),
    ],
    keeps: [
        ("docs/a.md", "```\n`a_test_of_five_words_or_more`\n```\n`seckill_a_b_c_d_e_total`"),
        ("src/a.rs", "//! Tests: `a_test_of_five_words_or_more`\n#[test]\n\
            fn a_test_of_five_words_or_more() {}"),
    ];

    the_words_of_the_glossary_are_in_the_code: docs::terms_are_in_the_code,
    breaks: [("docs/glossary.md", "| lock | exclusion | `Guard`, `Locks::gone` | x | x |")],
    keeps: [("docs/glossary.md", "| lock | `exclusion` | - | `RLock` | x |")];

    metrics_of_alerts_and_dashboard_are_described: docs::monitored_metrics_are_described,
    breaks: [
        ("deploy/monitoring/a.yml", "expr: rate(seckill_order_total[5m]) > 0"),
        ("deploy/monitoring/a.json", "distlock_wait_bucket\n>>> src/telemetry/descriptions.rs\n\
            (\"distlock_wait_seconds\", \"Time\")"),
    ],
    keeps: [("deploy/monitoring/a.json", "sum(distlock_wait_seconds_bucket{job=\"seckill\"})\n\
        >>> src/telemetry/descriptions.rs\n(\"distlock_wait_seconds\", \"Time\")")];

    the_first_pages_are_short: docs::first_pages_are_short,
    breaks: [
        ("README.md", "x\n".repeat(201)),
        ("docs/ARCHITECTURE.md", "x ".repeat(2501)),
    ],
    keeps: [("README.md", "x\n".repeat(200)), ("docs/a.md", "x ".repeat(2501))];

    the_site_has_every_page: docs::site_has_every_page,
    breaks: [
        ("docs/locks/a.md", ""),
        ("docs/decisions/README.md", ""),
        ("docs/a.md", "\n>>> docs/SUMMARY.md\n- [A](a.md)\n- [B](a.md)"),
    ],
    keeps: [("docs/SUMMARY.md", ""), ("docs/decisions/0001-a.md", ""), ("README.md", "")];

    each_decision_has_its_date_and_its_parts: docs::decisions_are_complete,
    breaks: [
        ("docs/decisions/0001-a.md", "Date: x\n## Context\n## Decision\n## Consequences"),
        ("docs/decisions/0001-a.md", "## Context\n## Decision"),
    ],
    keeps: [("docs/decisions/README.md", "# Decisions")];

    links_between_documents_resolve: links::links_resolve,
    breaks: [
        ("docs/a.md", "See [there](b.md)."),
        ("docs/a.md", "# One\n[below](#two)"),
        ("docs/a.md", "# One\n```\n# two\n```\n[below](a.md#two)"),
        ("docs/a.md", "![a picture](../a.png)"),
    ],
    keeps: [
        ("docs/a.md", "# One `b`: two\n# Two\n# Two\n[a](#one-b-two) [b](../docs/a.md#two-1)"),
        ("docs/a.md", "<a id=\"here\"></a>[a](#here), `[b](c)`, [c](https://example.com/#d)"),
        ("docs/a.md", "```\n[a](b.md)\n```"),
    ];

    pages_in_english_and_in_chinese_agree: languages::pairs_agree,
    breaks: [
        ("docs/locks/a.md", ""),
        ("docs/zh/a.md", ""),
        ("docs/locks/a.md", languages::sample("## 乙", "### 乙")),
        ("docs/locks/a.md", languages::sample("- 一。\n", "")),
        ("docs/locks/a.md", languages::sample("| a | 是 |\n", "")),
        ("docs/locks/a.md", languages::sample("是", "否")),
        ("docs/locks/a.md", languages::sample("2 ms", "3 ms")),
        ("docs/locks/a.md", languages::sample("SET", "GET")),
        ("docs/locks/a.md", languages::sample("make a", "make b")),
        ("docs/locks/a.md", languages::sample("(#乙)", "(../../locks/a.md#b)")),
        ("docs/locks/a.md", languages::sample("第二个持有者同时进入", "a second holder in")),
        ("docs/locks/a.md", languages::sample("乙)。", "乙)。so a second holder is in")),
        ("docs/locks/a.md", languages::sample("[English]", "\n\n\n[English]")),
    ],
    keeps: [("docs/locks/a.md", languages::sample("", "")), ("docs/a.md", "")];

    pages_that_files_name_exist: links::named_pages_exist,
    breaks: [
        ("src/a.rs", "//! See docs/lost.md."),
        ("Dockerfile", "# docs/lost.md; docs/a"),
    ],
    keeps: [("docs/a.md", "`docs/a.md`; mydocs/a"), ("tests/tidy.rs", "docs/lost.md")];

    tests_are_named_by_sentences: test_names::are_sentences,
    breaks: [
        ("tests/buy.rs", "#[test]\nfn buying() {}"),
        ("src/a.rs", "mod tests { fn a() {} #[tokio::test] async fn it_works() {} }"),
    ],
    keeps: [("tests/buy.rs", "fn helper() {}\n#[test]\nfn no_user_buys_twice() {}")];

    tests_are_named_in_the_codes_own_words: test_names::are_precise,
    breaks: [
        ("tests/buy.rs", "#[test]\nfn nobody_buys_twice() {}"),
        ("src/a.rs", "#[cfg(test)]\nmod tests { #[tokio::test] async fn a_loss_is_told() {} }"),
        ("conformance/tests/a.rs", "const A: Check = Check { name: \"a_waiter_is_let_in\", f };"),
        ("tests/tidy/a.rs", "laws! { kinds_are_told_apart: layers::kinds, breaks: [] }"),
    ],
    keeps: [
        ("tests/buy.rs", "fn told() {}\n#[test]\nfn whole_units_are_sold() {}"),
        ("src/a.rs", "fn f() { g(A { name: \"who_is_told\" }) }"),
    ];

    types_are_named_by_nouns: words::types_are_nouns,
    breaks: [
        ("newcomer/src/a.rs", "struct Held;"),
        ("newcomer/src/a.rs", "enum Waiting {}"),
        ("newcomer/src/a.rs", "#[cfg(test)] mod tests { trait Others {} }"),
    ],
    keeps: [("newcomer/src/a.rs", "struct HeldLock; struct Housekeeping; enum Seed {}")];

    no_two_types_of_a_crate_share_a_name: words::types_have_no_twins,
    breaks: [("newcomer/src/a.rs", "mod a { struct Place; } mod b { enum Place {} }")],
    keeps: [("newcomer/src/a.rs", "mod a { struct Error; } mod b { struct Error; struct A; }")];

    prose_names_and_counts: words::prose_is_precise,
    breaks: [
        ("newcomer/src/a.rs", "/// It waits, in vain,\n/// for an answer.\nfn f() {}"),
        ("newcomer/a.lua", "-- Purpose: tell\n-- whoever waits"),
        ("newcomer/a.md", "One of them\nis himself."),
        ("newcomer/a.md", "| a | nobody's |"),
        ("src/a.rs", "fn f() { say(\"whoever waits\") }"),
        ("newcomer/src/a.rs", "/// ```\n/// f(); // nobody waits\n/// ```\nfn f() {}"),
        ("newcomer/src/a.rs", "//! ```no_run\n//! // For whoever\n//! # use a;\n//! ```"),
        ("newcomer/a.md", "```sh\n# Waits for\n# whoever holds it.\nrun\n```"),
        ("newcomer/a.py", "# Waits for\n# whoever holds it.\n"),
        ("newcomer/a.go", "// Waits for whoever holds it.\n"),
    ],
    keeps: [
        ("newcomer/src/a.rs", "fn f() { say(nobody, \"x\") } // `nobody` is a name"),
        ("newcomer/a.md", "```\nnobody\n```\nThe holder `whoever am i` waits."),
        ("newcomer/a.md", "```sh\nsu nobody # as root\n```\n```rust\nnobody();\n```"),
    ];

    chinese_terms_are_those_of_the_glossary: words::chinese_terms_are_of_the_glossary,
    breaks: [
        ("newcomer/a.md", "| 令牌 | 围栏令牌 |"),
        ("newcomer/a.json", "{\"bug\": \"注入的缺陷 {bug}\"}"),
        ("newcomer/a.md", "租期结束之前续约。"),
        ("docs/glossary.md", "| lease | the time | `Lease` | – | 租借 |"),
    ],
    keeps: [
        ("newcomer/a.md", "隔离令牌，植入缺陷，故障注入"),
        ("newcomer/dianping.rs", "const GONE: &str = \"优惠券不存在\";"),
    ];

    sentences_have_at_most_30_words: words::sentences_are_short,
    breaks: [
        ("newcomer/src/a.rs", format!("//! {}\n//! {}.", "a ".repeat(20), "b ".repeat(11))),
        ("newcomer/a.md", format!("- {}", "word ".repeat(31))),
        ("newcomer/a.md", format!("一。{}`x`。", "字".repeat(80))),
    ],
    keeps: [
        ("newcomer/src/a.rs", format!("//! {}.\n//!\n//! {}", "a ".repeat(20), "b ".repeat(20))),
        ("newcomer/a.md", format!("- {}\n- {}", "word ".repeat(30), "word ".repeat(30))),
        ("newcomer/a.md", format!("One `{}`. Two.", "x ".repeat(31))),
        ("newcomer/a.md", format!("{0}`x y`。{0} Redis。", "字".repeat(79))),
    ];

    summaries_of_documentation_stand_alone: words::summaries_stand_alone,
    breaks: [("newcomer/src/a.rs", "/// The same, later.\nfn f() {}")],
    keeps: [("newcomer/src/a.rs", "/// Locks.\n///\n/// It waits.\nfn f() {}")];

    metrics_have_units_and_descriptions: words::metrics_follow_the_conventions,
    breaks: [
        ("src/a.rs", "fn f() { counter!(\"seckill_orders\"); }"),
        ("src/telemetry.rs", "fn f() { metrics::histogram!(\"seckill_order_time\") }"),
        ("src/telemetry.rs", "fn f() { gauge!(\"seckill_places_total\") }"),
    ],
    keeps: [("src/telemetry.rs", "fn f() { gauge!(\"seckill_places\"); }")];

    the_architecture_page_names_every_folder: assets::architecture_names_every_folder,
    breaks: [("docs/ARCHITECTURE.md", ""), ("src/store/mod.rs", "")],
    keeps: [("docs/ARCHITECTURE.md", "docs/ is this")];
}
