//! What reaches a terminal: text without control characters, and colour only for people.
//!
//! Errors, methods and keys come from strangers. One that holds an escape sequence could
//! otherwise rewrite what the operator sees, or worse; and a right-to-left mark could turn a
//! name around.

use indicatif::{ProgressBar, ProgressStyle};
use owo_colors::Style;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

/// Whether this character does anything but show itself. Spaces that look like a space, marks
/// that join the one before, and what Unicode has not assigned count as well.
pub(crate) fn is_hostile(c: char) -> bool {
    !matches!(c, '"' | '\'' | '\\') && c.escape_debug().len() > 1
}

/// Text in one line: what is hostile is written as Rust would, such as `\n` or `\u{1b}`.
pub(crate) fn plain(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hostile(c) { all.extend(c.escape_debug()) } else { all.push(c) }
    }
    all
}

/// The same, and at most so many characters of it.
pub(crate) fn short(text: &str, most: usize) -> String {
    let all = plain(text);
    match all.char_indices().nth(most) {
        Some(_) => all.chars().take(most - 1).chain(['…']).collect(),
        None => all,
    }
}

/// One line of JSON. What is hostile stands only within its strings, so it can be written as
/// `\u…`; line breaks of a value that came as text stand only between them.
pub(crate) fn json(value: &impl serde::Serialize) -> serde_json::Result<String> {
    let mut all = String::new();
    for c in serde_json::to_string(value)?.chars() {
        match c {
            '\n' | '\r' | '\t' => all.push(' '),
            c if is_hostile(c) => {
                let mut units = [0; 2];
                c.encode_utf16(&mut units).iter().for_each(|unit| all += &format!("\\u{unit:04x}"));
            }
            c => all.push(c),
        }
    }
    Ok(all)
}

/// A line on standard error, for whoever still listens.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Paints where a person looks at standard output, and has not asked for none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    is_on: bool,
}

impl Paint {
    pub(crate) fn for_stdout() -> Self {
        let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { is_on: std::io::stdout().is_terminal() && !is_refused }
    }

    pub(crate) fn text(self, text: &str, style: Style) -> String {
        if self.is_on { style.style(text).to_string() } else { text.to_owned() }
    }
}

/// Something that moves on standard error while a person waits; nothing where nobody looks.
pub(crate) fn spinner(what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg} {pos} ({elapsed})");
    let bar = ProgressBar::new_spinner().with_message(what);
    bar.enable_steady_tick(Duration::from_millis(120));
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\x1b[2J\x07\u{9b}31m\u{202e}b\r\n\t\0\u{2028}\u{7f}";

    #[test]
    fn control_characters_are_spelled_out_and_the_rest_stays() {
        let told = plain(HOSTILE);
        assert!(!told.chars().any(is_hostile) && !told.contains(char::is_control), "{told:?}");
        assert!(told.starts_with(r"a\u{1b}[2J"), "{told}");
        assert_eq!(plain(r#"it's "so" \ übel 重试 é"#), r#"it's "so" \ übel 重试 é"#);
    }

    #[test]
    fn shortened_text_has_the_length_and_says_so() {
        assert_eq!(short("abcdef", 6), "abcdef");
        assert_eq!(short("abcdefg", 6), "abcde…");
        assert_eq!(short("\n\n\n\n", 6), r"\n\n\…");
    }

    #[test]
    fn json_is_one_line_without_control_characters_and_means_the_same() {
        let raw: Box<serde_json::value::RawValue> =
            serde_json::from_str("{\n\t\"a\": [1,\r\n 20000000000000000001, \"\u{9b}\u{e0041}\"]}").unwrap();
        for value in [serde_json::to_value(HOSTILE).unwrap(), serde_json::to_value(raw).unwrap()] {
            let line = json(&value).unwrap();
            assert!(!line.contains(char::is_control) && !line.chars().any(is_hostile), "{line:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
        }
        let raw: Box<serde_json::value::RawValue> = serde_json::from_str("[\n1 ]").unwrap();
        assert_eq!(json(&raw).unwrap(), "[ 1 ]");
    }
}
