//! What must not be seen without being asked for: parameters, results, idempotency keys, and
//! what an error repeats of them ("invalid type: string \"Jane Doe\", expected …").

use serde_json::Value;

/// What stands in the place of what was taken out.
const MASK: &str = "[redacted]";

/// Shorter values are too common to be told from other words.
const SHORTEST: usize = 3;

/// So many values of one record are looked for. Where there are more, the whole text goes.
const VALUES_MAX: usize = 1_000;

/// `text` without what stands in these JSON texts, and without this key.
pub(super) fn masked(text: &str, secrets: &[&str], key: Option<&str>) -> String {
    let mut values: Vec<String> = key.map(str::to_owned).into_iter().collect();
    for secret in secrets {
        match serde_json::from_str(secret) {
            Ok(value) => collect(&value, &mut values),
            // No JSON, or deeper than the parser goes: the whole, and every word of it.
            Err(_) => {
                values.push((*secret).to_owned());
                let is_between = |c: char| c.is_whitespace() || "\"'\\,:;=[]{}()<>".contains(c);
                values.extend(secret.split(is_between).map(str::to_owned));
            }
        }
    }
    values.retain(|value| value.chars().count() >= SHORTEST);
    if values.len() > VALUES_MAX {
        return MASK.to_owned();
    }
    // As they are, and as JSON and `Debug` would write them.
    let spelled = values.iter().flat_map(|value| {
        let json = Value::from(value.as_str()).to_string();
        let debug = format!("{value:?}");
        [value.clone(), inner(&json), inner(&debug)]
    });
    let mut all: Vec<String> = spelled.collect();
    // The longest first: one may be a part of another.
    all.sort_by_key(|value| std::cmp::Reverse(value.len()));
    all.dedup();
    all.iter().fold(text.to_owned(), |text, value| text.replace(value.as_str(), MASK))
}

fn inner(quoted: &str) -> String {
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(quoted).to_owned()
}

/// Strings and numbers, wherever they are. The parser bounds the depth.
fn collect(value: &Value, values: &mut Vec<String>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => values.push(number.to_string()),
        Value::String(text) => values.push(text.clone()),
        Value::Array(all) => all.iter().for_each(|value| collect(value, values)),
        Value::Object(all) => all.values().for_each(|value| collect(value, values)),
    }
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
    fn more_values_than_can_be_looked_for_hide_everything() {
        let many: Vec<usize> = (1_000..3_000).collect();
        assert_eq!(masked("some text", &[&serde_json::to_string(&many).unwrap()], None), MASK);
    }
}
