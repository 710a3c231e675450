//! What must not be seen without being asked for: parameters, results, idempotency keys, and
//! what an error repeats of them ("invalid type: string \"Jane Doe\", expected …").

use serde_json::Value;
use std::collections::BTreeSet;

/// What stands in the place of what was taken out.
const MASK: &str = "[redacted]";

/// Shorter values are too common to be told from other words.
const SHORTEST: usize = 3;

/// A part of a value counts only from this length on, for the same reason.
const WORD_SHORTEST: usize = 6;

/// So many values of one record are looked for. Where there are more, the whole text goes.
const VALUES_MAX: usize = 1_000;

/// Shorter texts were not cut, at their beginning by `exec` or at their end by the journal.
const CUT_FROM: usize = 1_000;

/// `text` without what stands in these JSON texts, and without this key.
pub(super) fn masked(text: &str, secrets: &[&str], key: Option<&str>) -> String {
    let mut values = BTreeSet::new();
    if let Some(key) = key {
        add_text(key, &mut values);
    }
    for secret in secrets {
        match serde_json::from_str(secret) {
            Ok(value) => {
                collect(&value, &mut values);
                // As they stand there: a parser may round them.
                values.extend(numbers(secret));
            }
            // No JSON, or deeper than the parser goes: the whole, and every word of it.
            Err(_) => {
                values.insert((*secret).to_owned());
                values.extend(secret.split(is_between).map(str::to_owned));
            }
        }
    }
    values.retain(|value| value.chars().count() >= SHORTEST);
    if values.len() > VALUES_MAX {
        return MASK.to_owned();
    }
    let mut all: Vec<String> =
        values.iter().flat_map(|value| spellings(value)).collect::<BTreeSet<_>>().into_iter().collect();
    // The longest first: one may be a part of another.
    all.sort_by_key(|value| std::cmp::Reverse(value.len()));
    // As long as it was: masks may be shorter than what they stand for.
    let may_be_cut = text.chars().count() >= CUT_FROM;
    let text = all.iter().fold(text.to_owned(), |text, value| text.replace(value.as_str(), MASK));
    if may_be_cut { without_cut_ends(text, &all) } else { text }
}

fn is_between(c: char) -> bool {
    c.is_whitespace() || "\"'\\,:;=[]{}()<>".contains(c)
}

/// A text, its lines, and the long ones of its words: an error may repeat a part of it.
fn add_text(text: &str, values: &mut BTreeSet<String>) {
    values.insert(text.to_owned());
    values.extend(text.lines().map(|line| line.trim().to_owned()));
    let words = text.split(is_between).filter(|word| word.chars().count() >= WORD_SHORTEST);
    values.extend(words.map(str::to_owned));
}

/// As it is, and as JSON, JSON in ASCII and `Debug` would write it.
fn spellings(value: &str) -> [String; 4] {
    let json = inner(&Value::from(value).to_string());
    let mut ascii = String::new();
    for c in json.chars() {
        match c {
            c if c.is_ascii() => ascii.push(c),
            c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| ascii += &format!("\\u{unit:04x}")),
        }
    }
    [value.to_owned(), json, ascii, inner(&format!("{value:?}"))]
}

fn inner(quoted: &str) -> String {
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(quoted).to_owned()
}

/// Strings and numbers, wherever they are, and keys that cannot be the name of a field: a map
/// may have people for keys. The parser bounds the depth.
fn collect(value: &Value, values: &mut BTreeSet<String>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => drop(values.insert(number.to_string())),
        Value::String(text) => add_text(text, values),
        Value::Array(all) => all.iter().for_each(|value| collect(value, values)),
        Value::Object(all) => {
            for (key, value) in all {
                if !is_name(key) {
                    add_text(key, values);
                }
                collect(value, values);
            }
        }
    }
}

/// `order_id`, `orderId`, `order-id`: "missing field `order_id`" is of use only with it.
fn is_name(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// The numbers of a JSON text. What looks like one within its strings does no harm.
fn numbers(json: &str) -> impl Iterator<Item = String> {
    let words = json.split(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c)));
    words.filter(|word| word.bytes().any(|byte| byte.is_ascii_digit())).map(str::to_owned)
}

/// Where a text was cut, half a value may be left: its end at the beginning, where only "exit
/// code 1: " and the like stands before it, or its beginning at the end.
fn without_cut_ends(mut text: String, values: &[String]) -> String {
    let is_long = |part: &str| part.chars().count() >= SHORTEST;
    let fit_at_end = values.iter().filter_map(|value| {
        let heads = value.char_indices().map(|(at, _)| &value[..at]).rev();
        heads.take_while(|head| is_long(head)).find(|head| text.ends_with(head)).map(str::len)
    });
    if let Some(len) = fit_at_end.max() {
        text.replace_range(text.len() - len.., MASK);
    }
    let head: usize = text.chars().take(100).map(char::len_utf8).sum();
    let starts = text[..head].match_indices(": ").map(|(at, joint)| at + joint.len());
    for start in starts.chain([0]).collect::<Vec<_>>().into_iter().rev() {
        let fit = values.iter().filter_map(|value| {
            let tails = value.char_indices().skip(1).map(|(at, _)| &value[at..]);
            tails.take_while(|tail| is_long(tail)).find(|tail| text[start..].starts_with(tail)).map(str::len)
        });
        if let Some(len) = fit.max() {
            text.replace_range(start..start + len, MASK);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_out_however_they_are_written_and_names_stay() {
        let params = r#"{"card": "4111-1111", "who": ["Jane \"J\" Doe", 987654], "no": 1, "ok": true}"#;
        let text = r#"card 4111-1111 of Jane "J" Doe, "Jane \"J\" Doe", 987654, attempt 1 is true"#;
        assert_eq!(
            masked(text, &[params], None),
            "card [redacted] of [redacted], \"[redacted]\", [redacted], attempt 1 is true"
        );
    }

    #[test]
    fn the_longest_value_goes_first_and_text_that_is_no_json_goes_whole() {
        assert_eq!(masked("abcdef abc", &[r#"["abc", "abcdef"]"#], None), "[redacted] [redacted]");
        assert_eq!(masked("was: not json", &["not json"], None), "was: [redacted]");
    }

    #[test]
    fn what_is_nested_too_deep_for_the_parser_and_the_key_go_too() {
        let deep = format!("{}\"Jane\"{}", "[".repeat(500), "]".repeat(500));
        assert_eq!(masked("no Jane, ship-17", &[&deep], Some("ship-17")), "no [redacted], [redacted]");
    }

    #[test]
    fn parts_of_a_value_go_too_if_they_are_long() {
        let params = r#"{"note": "first line\nsee hunter22, ok", "n": 20000000000000000001}"#;
        let text = "first line: no hunter22 at 20000000000000000001; see ok";
        assert_eq!(masked(text, &[params], None), "[redacted]: no [redacted] at [redacted]; see ok");
    }

    #[test]
    fn letters_that_are_written_as_numbers_go_too() {
        let text = r"no J\u00fcrgen \ud83d\ude00 here";
        assert_eq!(masked(text, &["\"Jürgen 😀\""], None), "no [redacted] here");
    }

    #[test]
    fn half_a_value_where_the_text_was_cut_goes_too() {
        let filler = "x ".repeat(CUT_FROM);
        let text = format!("exit code 1: 1111-1111 {filler} 4111-11");
        assert_eq!(
            masked(&text, &[r#"["4111-1111-1111"]"#], None),
            format!("exit code 1: [redacted] {filler} [redacted]")
        );
        assert_eq!(masked("exit code 1: 1111", &[r#"["4111-1111-1111"]"#], None), "exit code 1: 1111");
    }

    #[test]
    fn half_a_value_goes_also_where_masking_made_the_text_short() {
        let secret = "4111-1111-1111-1111-".repeat(10);
        let text = format!("exit code 1: {}{}", format!("{secret} ").repeat(5), &secret[..9]);
        let shown = masked(&text, &[&format!("[\"{secret}\"]")], None);
        assert!(text.len() >= CUT_FROM && shown.len() < CUT_FROM);
        assert!(!shown.contains("4111"), "{shown}");
    }

    #[test]
    fn keys_that_are_no_names_of_fields_go_and_names_stay() {
        let params = r#"{"jane@x.org": 1, "+49 151": 2, "order_id": {"Jörg": 3}, "to-city": 4}"#;
        let text = "unknown field `jane@x.org`, `+49 151` or `Jörg`, expected `order_id` or `to-city`";
        assert_eq!(
            masked(text, &[params], None),
            "unknown field `[redacted]`, `[redacted]` or `[redacted]`, expected `order_id` or `to-city`"
        );
    }

    #[test]
    fn more_values_than_can_be_looked_for_hide_everything() {
        let many: Vec<usize> = (1_000..3_000).collect();
        assert_eq!(masked("some text", &[&serde_json::to_string(&many).unwrap()], None), MASK);
    }
}
