//! Limits as text: what is right parses and comes back the same, what is wrong says
//! what, where, and what to write instead, and nothing panics.

use proptest::prelude::*;
use tidegate::Limit;

fn error(text: &str) -> String {
    match text.parse::<Limit>() {
        Ok(limit) => panic!("`{text}` parsed as `{limit}`"),
        Err(error) => error.to_string(),
    }
}

fn limit(text: &str) -> Limit {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_form_parses_and_shows_itself_the_same() {
    for text in [
        "1000/s",
        "100/min burst 20",
        "5 per 10s sliding-log",
        "leaky 50/s queue 100",
        "leaky 50/s capacity 100",
        "10 concurrent queue 50 wait 2s",
        "10 concurrent",
        "20 every 1s cap 100",
        "100/s warmup 30s",
        "100/s warmup 30s wait 2s",
        "1/day",
        "10000000/s",
        "3 per 7us wait 1s500ms",
        "5 per 10s fixed-window",
        "5 per 10s sliding-window slices 20",
        "5 per 10s sliding-window wait 1h30min",
        "1/week burst 2",
    ] {
        assert_eq!(limit(text).to_string(), text);
    }
}

#[test]
fn other_ways_to_write_the_same_limit_mean_the_same() {
    for (text, same) in [
        ("1000/s burst 1s wait 1s", "1000/s wait 1s"),
        ("1_000 / second", "1000/s"),
        ("1000 per 1s token-bucket", "1000/s"),
        ("50/s leaky queue 100", "leaky 50/s queue 100"),
        ("sliding-log 5/10s", "5 per 10s sliding-log"),
        ("  5  per  0.5min ", "5 per 30s"),
        ("100/s burst 1.5s", "100/s burst 150"),
        ("60/m", "60/min"),
        ("20 every 1s", "20 every 1s cap 20"),
    ] {
        assert_eq!(limit(text), limit(same), "{text}");
    }
}

#[test]
fn a_wrong_text_says_what_and_where_and_shows_a_right_one() {
    for (text, what, column) in [
        ("", "there is no amount", 1),
        ("fast", "`fast` is not a word of a limit", 1),
        ("0/s", "a limit allows at least 1", 1),
        ("1000", "after the amount comes `/s`", 5),
        ("1000/", "`/` needs a period", 6),
        ("1000/fortnight", "`fortnight` is not a duration", 6),
        ("1000/s burst", "`burst` needs a number of units or a duration", 13),
        ("1000/s burst 0", "`burst` is 1 to", 8),
        ("1000/s burst 5 burst 6", "`burst` stands there twice", 16),
        ("1000/s 500/s", "`500` is a second amount", 8),
        ("5 per 10s sliding-log fixed-window", "`fixed-window` does not go with `sliding-log`", 23),
        ("5 per 10s sliding-log sliding-log", "`sliding-log` stands there twice", 23),
        ("5 per 10s sliding-log burst 3", "`burst` does not go with a sliding log", 23),
        ("leaky 50/s", "a `leaky` bucket needs `capacity`", 1),
        ("leaky 50/s queue 5 capacity 5", "not both", 12),
        ("10 concurrent queue 50", "needs the longest `wait`", 15),
        ("10 concurrent wait 1s", "needs a bounded `queue`", 15),
        ("100/s warmup 0s", "a warm-up lasts at least", 7),
        ("100/s wait 5", "has no unit", 12),
        ("100/s wait 5.0000001s", "finer than a microsecond", 12),
        ("99999999999999999999/s", "too large", 1),
        ("2000000000000/s", "more than 1,000,000,000,000", 1),
        ("1000000000000/s", "more than 1,000,000,000 a second", 1),
        ("1/day burst 1000000", "more than ten years", 7),
        ("1 per 0s", "a period lasts at least", 7),
        ("1 per 5000weeks", "longer than ten years", 7),
        ("5 per 10s sliding-window slices 0", "1 to 1000 slices", 26),
        ("2000000/s sliding-log", "at most 1000000", 1),
        ("1000000/h sliding-log wait 10h", "entries ahead", 23),
        ("1/s wait 999999999999999999.999999999999999999s", "too large", 10),
    ] {
        let error = error(text);
        assert!(error.contains(what), "`{text}`: {error}");
        assert!(error.contains(&format!("(at column {column} of ")), "`{text}`: {error}");
        let example = error.rsplit_once("write for example `").expect("an example").1;
        limit(example.trim_end_matches('`'));
    }
}

#[test]
fn a_hostile_text_is_shown_bounded_and_without_control_characters() {
    let error = error(&format!("1000/s {}\0\u{7}", "x".repeat(100)));
    assert!(!error.contains(['\0', '\u{7}']) && error.len() < 600, "{error}");
    let error = self::error(&"9".repeat(10_000_000));
    assert!(error.contains("at most 256 bytes") && error.len() < 400, "{error}");
}

#[cfg(feature = "serde")]
#[test]
fn serde_reads_and_writes_the_text() {
    let json = serde_json::to_string(&limit("100/min burst 20")).unwrap();
    assert_eq!(json, "\"100/min burst 20\"");
    assert_eq!(serde_json::from_str::<Limit>(&json).unwrap(), limit("100/min burst 20"));
    let error = serde_json::from_str::<Limit>("\"100/fortnight\"").unwrap_err().to_string();
    assert!(error.contains("column 5"), "{error}");
}

proptest! {
    #[test]
    fn no_text_panics_and_what_parses_comes_back(text in "\\PC{0,40}") {
        if let Ok(limit) = text.parse::<Limit>() {
            prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
        }
    }

    #[test]
    fn words_of_limits_in_any_order_neither_panic_nor_change(
        words in prop::collection::vec(prop::sample::select(vec![
            "1", "1000", "/", "per", "every", "s", "10s", "1us", "3650d", "burst", "wait", "warmup", "cap", "queue",
            "capacity", "slices", "leaky", "fixed-window", "sliding-window", "sliding-log", "concurrent", "0",
            "18446744073709551615", "1000000000000",
        ]), 0..9),
    ) {
        let text = words.join(" ");
        if let Ok(limit) = text.parse::<Limit>() {
            prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit.clone()), "{}", limit);
            // Whatever parses can be put in force and asked.
            let gate = tidegate::Limiter::builder().max_keys(8).build().gate("any", limit).unwrap();
            let _ = (gate.check("k"), gate.reserve_cost("k", 3), gate.peek_cost("k", u64::MAX));
        }
    }
}

#[test]
fn words_that_contradict_each_other_are_refused_with_what_to_write() {
    for (text, what, column) in [
        ("20 every 1s sliding-log", "`sliding-log` does not go with `every`", 13),
        ("sliding-log 20 every 1s", "`every` does not go with `sliding-log`", 16),
        ("20 every 1s leaky capacity 5", "`leaky` does not go with `every`", 13),
        ("20 every 1s fixed-window", "`fixed-window` does not go with `every`", 13),
        ("token-bucket 10 concurrent", "`concurrent` does not go with `token-bucket`", 17),
        ("leaky 10 concurrent queue 5 wait 1s", "`concurrent` does not go with `leaky`", 10),
        ("10 concurrent sliding-window", "`sliding-window` does not go with `concurrent`", 15),
        ("5/month", "a month has no fixed length", 3),
        ("5 per 2months", "a month has no fixed length", 7),
        ("5 per 1y", "a year has no fixed length", 7),
        ("5 per 30s wait 1quarter", "a quarter has no fixed length", 16),
        ("1/day burst 1000000", "a full key of 1000000", 7),
        ("leaky 1/day capacity 1000000", "a full key of 1000000", 13),
        ("leaky 1/day queue 1000000", "a full key of 1000001", 13),
        ("1 every 1day cap 16385", "a full key of 16385", 14),
        ("1/day burst 2 wait 3652day", "a wait of", 15),
    ] {
        let error = error(text);
        assert!(error.contains(what), "`{text}`: {error}");
        assert!(error.contains(&format!("(at column {column} of ")), "`{text}`: {error}");
    }
}

#[test]
fn a_builder_is_refused_what_contradicts_it_as_a_text_is() {
    let second = std::time::Duration::from_secs(1);
    for (builder, what) in [
        (Limit::every(20, second).sliding_log(), "`sliding-log` does not go with `every`"),
        (Limit::concurrent(10).leaky().capacity(5), "`leaky` does not go with `concurrent`"),
        (Limit::per_second(5).fixed_window().sliding_log(), "a limit has one algorithm"),
        (Limit::per_second(5).offset(second / 2), "`offset` does not go with a token bucket"),
        (Limit::per_second(5).fixed_window().offset(second), "is not less than the period"),
    ] {
        let error = builder.build().expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
    }
    let twice = Limit::per_second(5).sliding_log().sliding_log().build();
    assert_eq!(twice, Ok(limit("5/s sliding-log")));
}

#[test]
fn a_column_counts_characters_and_never_stands_inside_one() {
    let message = error("1000/µs burst ∞∞ wait");
    assert!(message.contains("(at column 15 of "), "{message}");
    let error = "1000/s bürst 5 ".parse::<Limit>().unwrap_err();
    assert_eq!(error.span(), Some(7..13));
    for long in [format!("x{}", "é".repeat(200)), "界".repeat(200), "😀".repeat(100)] {
        let error = long.parse::<Limit>().unwrap_err();
        let span = error.span().expect("a span");
        assert!(long.is_char_boundary(span.start) && long.is_char_boundary(span.end), "{span:?}");
        let column = long[..span.start].chars().count() + 1;
        assert!(error.to_string().contains(&format!("(at column {column} of ")), "{error}");
    }
}

/// Every kind of limit with every two modifiers, in every order: each is accepted and
/// comes back the same, or refused by a message that names one of the words.
#[test]
fn every_pair_of_words_is_accepted_or_refused_by_name() {
    const AMOUNTS: [(&str, &str); 4] =
        [("20/s", ""), ("20 per 10s", "per"), ("20 every 1s", "every"), ("10 concurrent", "concurrent")];
    const WORDS: [&str; 14] = [
        "token-bucket",
        "leaky",
        "fixed-window",
        "sliding-window",
        "sliding-log",
        "burst 5",
        "burst 2s",
        "wait 500ms",
        "warmup 30s",
        "cap 50",
        "queue 7",
        "capacity 9",
        "slices 4",
        "offset 100ms",
    ];
    let mut accepted = 0;
    for (amount, join) in AMOUNTS {
        for one in WORDS {
            for other in WORDS {
                for text in [
                    format!("{amount} {one} {other}"),
                    format!("{one} {amount} {other}"),
                    format!("{one} {other} {amount}"),
                ] {
                    match text.parse::<Limit>() {
                        Ok(limit) => {
                            accepted += 1;
                            let shown = limit.to_string();
                            assert_eq!(shown.parse::<Limit>(), Ok(limit), "`{text}` as `{shown}`");
                            // Nothing that was written is dropped.
                            for word in [one, other] {
                                let is_shown = word == "token-bucket"
                                    || shown.contains(word)
                                    || (word == "burst 2s" && shown.contains("burst"))
                                    || (word == "slices 4" && shown.contains("slices"));
                                assert!(is_shown || shown.contains("burst 4"), "`{text}` as `{shown}`");
                            }
                        }
                        Err(error) => {
                            let error = error.to_string();
                            let what = error.split(" (at column").next().unwrap_or_default();
                            let words = [one, other, join].map(|w| w.split(' ').next().unwrap_or_default());
                            let names = |word: &&str| !word.is_empty() && what.contains(&format!("`{word}`"));
                            assert!(words.iter().any(names), "`{text}`: {error}");
                            let example = error.rsplit_once("write for example `").expect("an example").1;
                            limit(example.trim_end_matches('`'));
                        }
                    }
                }
            }
        }
    }
    assert!(accepted > 60, "{accepted}");
}
