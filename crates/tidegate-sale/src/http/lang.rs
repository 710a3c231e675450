//! Which of the two languages a reader prefers.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT_LANGUAGE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lang {
    En,
    Zh,
}

/// Preferences that are looked at; browsers send a handful.
const RANGES_MAX: usize = 16;

impl Lang {
    /// The one with the highest weight, the first of equals; English if neither is named.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        // Several lines are one list.
        let lines = headers.get_all(ACCEPT_LANGUAGE).iter().filter_map(|line| line.to_str().ok());
        let mut best = (0.0, Self::En);
        for range in lines.flat_map(|line| line.split(',')).take(RANGES_MAX) {
            let (name, weight) = range.split_once(';').unwrap_or((range, ""));
            let weight: f32 = match weight.trim().strip_prefix("q=") {
                Some(weight) => weight.trim().parse().unwrap_or(0.0),
                None => 1.0,
            };
            if let Some(lang) = Self::named(name.trim())
                && weight > best.0
            {
                best = (weight, lang);
            }
        }
        best.1
    }

    fn named(name: &str) -> Option<Self> {
        let primary = name.split('-').next().unwrap_or(name);
        [("zh", Self::Zh), ("en", Self::En)]
            .into_iter()
            .find_map(|(own, lang)| primary.eq_ignore_ascii_case(own).then_some(lang))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heavier_language_wins_and_english_otherwise() {
        for (text, lang) in [
            ("", Lang::En),
            ("zh", Lang::Zh),
            ("zh-CN,zh;q=0.9,en;q=0.8", Lang::Zh),
            ("en-GB, zh;q=0.9", Lang::En),
            ("de, ZH-hant;q=0.2", Lang::Zh),
            ("en;q=0.1, zh;q=0.2", Lang::Zh),
            ("zh;q=0", Lang::En),
            ("zh;q=x", Lang::En),
            ("de, *", Lang::En),
            (",,;;q=,zhx", Lang::En),
        ] {
            let headers = [(ACCEPT_LANGUAGE, text.parse().unwrap())].into_iter().collect();
            assert_eq!(Lang::of(&headers), lang, "{text}");
        }
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = ["de", "en;q=0.5", "zh"].map(|line| (ACCEPT_LANGUAGE, line.parse().unwrap()));
        assert_eq!(Lang::of(&lines.into_iter().collect()), Lang::Zh);
    }
}
