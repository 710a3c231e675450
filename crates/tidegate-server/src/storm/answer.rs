//! What an answer of the sale says: its code, and the path or number in it.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The sale's answers all look like this; of a stranger's, `code` is 0.
#[derive(Deserialize, Default)]
pub(super) struct Answer<'a> {
    #[serde(default)]
    pub(super) code: u32,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

/// Longer texts are no path and no number of ours.
const TEXT_MAX: usize = 256;

impl<'a> Answer<'a> {
    pub(super) fn read(body: &'a [u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// Its data as a text that may stand in the next request's address.
    pub(super) fn text(&self) -> Option<Cow<'a, str>> {
        #[derive(Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
        let Text(text) = self.parse()?;
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
        let is_fit = !text.is_empty() && text.len() <= TEXT_MAX && text.bytes().all(is_part);
        is_fit.then_some(text)
    }

    /// Its data as something known.
    pub(super) fn parse<T: Deserialize<'a>>(&self) -> Option<T> {
        serde_json::from_str(self.data?.get()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(body: &str) -> Option<String> {
        Answer::read(body.as_bytes()).text().map(Cow::into_owned)
    }

    #[test]
    fn a_text_is_taken_where_it_can_stand_in_an_address() {
        assert_eq!(text(r#"{"code":200,"message":"ok","data":"g1-7-1_A~"}"#).as_deref(), Some("g1-7-1_A~"));
        assert_eq!(text(r#"{"code":200,"data":"a\u0062c"}"#).as_deref(), Some("abc"));
        let bad = ["", "a/b", "a b", "a?b", r"a\r\nX: y", "ä", "%41", &"x".repeat(257)];
        for bad in bad.map(|text| format!(r#"{{"code":200,"data":"{text}"}}"#)) {
            assert_eq!(text(&bad), None, "{bad}");
        }
        for bad in
            [r#"{"code":200}"#, r#"{"code":200,"data":null}"#, r#"{"code":200,"data":7}"#, "<html>", "[]"]
        {
            assert_eq!(text(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_code_is_read_or_zero() {
        let code = |body: &str| Answer::read(body.as_bytes()).code;
        assert_eq!(code(r#"{"code":42901,"message":"limited","data":{"retry_after_ms":900}}"#), 42901);
        for bad in [r#"{"code":-1}"#, r#"{"code":"200"}"#, r#"{"code":4294967296}"#, "\0", "", "{}"] {
            assert_eq!(code(bad), 0, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Answer::read(&bytes).text();
        }
    }
}
