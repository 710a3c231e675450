//! A limit from text. Reads words, fills the builder, and says where it went wrong.
//!
//! The rules of what goes with what are the builder's; here is only the grammar.

use crate::build::{About, LimitBuilder, Part, Shape, Takes, Value};
use crate::{Limit, LimitError, duration, error::bounded};
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

/// No right limit is longer; a stranger's text is not worth more.
const TEXT_MAX: usize = 256;

/// Algorithms that have a word of their own; the others are named by what joins amount and period.
const SHAPES: [Shape; 5] =
    [Shape::TokenBucket, Shape::Leaky, Shape::FixedWindow, Shape::SlidingWindow, Shape::SlidingLog];

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        if text.len() > TEXT_MAX {
            let what = format!("a limit is at most {TEXT_MAX} bytes of text, this has {}", text.len());
            let fits = (0..=TEXT_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            return Err(LimitError::new(what, "1000/s burst 20").at(text, fits..text.len()));
        }
        Parser { text, words: words(text), next: 0, seen: Vec::new() }.limit()
    }
}

impl TryFrom<&str> for Limit {
    type Error = LimitError;

    fn try_from(text: &str) -> Result<Self, LimitError> {
        text.parse()
    }
}

impl TryFrom<String> for Limit {
    type Error = LimitError;

    fn try_from(text: String) -> Result<Self, LimitError> {
        text.parse()
    }
}

/// Words with their place: split at white space, and the slash stands alone.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices() {
        if c.is_whitespace() || c == '/' {
            words.extend(start.take().map(|from| from..at));
            if c == '/' {
                words.push(at..at + 1);
            }
        } else {
            start.get_or_insert(at);
        }
    }
    words.extend(start.map(|from| from..text.len()));
    words
}

struct Parser<'a> {
    text: &'a str,
    words: Vec<Range<usize>>,
    next: usize,
    seen: Vec<(Part, Range<usize>)>,
}

type Word<'a> = (&'a str, Range<usize>);

impl<'a> Parser<'a> {
    fn limit(mut self) -> Result<Limit, LimitError> {
        let mut builder = Limit::per(0, Duration::ZERO);
        while let Some((word, span)) = self.word() {
            if word.starts_with(|c: char| c.is_ascii_digit()) {
                builder = self.amount(builder, word, span)?;
                continue;
            }
            let before = &self.words[..self.next - 1];
            if before.iter().any(|other| self.text[other.clone()] == *word) {
                let what = format!("`{}` stands there twice", bounded(word));
                return Err(self.error(what, "1000/s burst 20 wait 1s", span));
            }
            let shape = SHAPES.into_iter().find(|shape| shape.word() == word);
            let option = Part::OPTIONS.into_iter().find(|option| option.about().word == word);
            builder = match (shape, option) {
                (Some(shape), _) => self.shape(builder, shape, span)?,
                (None, Some(option)) => builder.with(option, self.value(option, span)?),
                (None, None) => {
                    let options = Part::OPTIONS.iter().map(|option| option.about().word);
                    let words: Vec<&str> = options.chain(SHAPES.map(Shape::word)).collect();
                    let what = format!("`{}` is not a word of a limit ({})", bounded(word), words.join(", "));
                    return Err(self.error(what, "1000/s burst 20 wait 1s", span));
                }
            };
        }
        let end = self.text.len();
        if self.place(Part::Amount).is_none() {
            return Err(self.error("there is no amount", "1000/s", end..end));
        }
        builder.checked().map_err(|(part, error)| error.at(self.text, self.place(part).unwrap_or(0..end)))
    }

    fn word(&mut self) -> Option<Word<'a>> {
        let span = self.words.get(self.next)?.clone();
        self.next += 1;
        Some((&self.text[span.clone()], span))
    }

    /// Where a part stands, if it was there.
    fn place(&self, part: Part) -> Option<Range<usize>> {
        self.seen.iter().find(|(seen, _)| *seen == part).map(|(_, span)| span.clone())
    }

    fn error(&self, what: impl Into<String>, example: &'static str, span: Range<usize>) -> LimitError {
        LimitError::new(what, example).at(self.text, span)
    }

    /// `1000 / s`, `5 per 10s`, `20 every 1s`, `10 concurrent`.
    fn amount(
        &mut self,
        mut builder: LimitBuilder,
        word: &str,
        span: Range<usize>,
    ) -> Result<LimitBuilder, LimitError> {
        if self.place(Part::Amount).is_some() {
            let what = format!("`{}` is a second amount", bounded(word));
            return Err(self.error(what, "1000/s burst 20", span));
        }
        builder.amount = self.number(word, &span, "the amount", "1000/s")?;
        self.seen.push((Part::Amount, span.clone()));
        let after = "after the amount comes `/s`, `per 10s`, `every 1s` or `concurrent`";
        let Some((join, join_span)) = self.word() else {
            return Err(self.error(after, "1000/s", span.end..span.end));
        };
        let (shape, example) = match join {
            "concurrent" => return self.shape(builder, Shape::Concurrency, join_span),
            "/" | "per" => (None, "5 per 10s"),
            "every" => (Some(Shape::Ticked), "20 every 1s"),
            other => {
                let what = format!("{after}, not `{}`", bounded(other));
                return Err(self.error(what, "1000/s", join_span));
            }
        };
        let Some((word, span)) = self.word() else {
            let end = join_span.end..join_span.end;
            return Err(self.error(format!("`{join}` needs a period"), example, end));
        };
        builder.period = match duration::unit_us(word) {
            Some(us) => Duration::from_micros(us),
            None => duration::parse(word).map_err(|what| self.error(what, example, span.clone()))?,
        };
        self.seen.push((Part::Period, span));
        match shape {
            Some(shape) => self.shape(builder, shape, join_span),
            None => Ok(builder),
        }
    }

    fn shape(
        &mut self,
        builder: LimitBuilder,
        shape: Shape,
        span: Range<usize>,
    ) -> Result<LimitBuilder, LimitError> {
        let builder = builder.shape(shape);
        match builder.clash {
            Some(clash) => Err(clash.at(self.text, span)),
            None => {
                self.seen.push((Part::Shape, span));
                Ok(builder)
            }
        }
    }

    /// The value of an option.
    fn value(&mut self, option: Part, span: Range<usize>) -> Result<Value, LimitError> {
        let About { word, takes, example, .. } = option.about();
        let needs = match takes {
            Takes::Units => format!("`{word}` needs a number"),
            Takes::Time => format!("`{word}` needs a duration"),
            Takes::UnitsOrTime => format!("`{word}` needs a number of units or a duration"),
        };
        let Some((value, at)) = self.word() else {
            return Err(self.error(needs, example, span.end..span.end));
        };
        let is_number = value.chars().all(|c| c.is_ascii_digit() || c == '_');
        let starts_right = value.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        if !starts_right || (!is_number && takes == Takes::Units) {
            return Err(self.error(format!("{needs}, not `{}`", bounded(value)), example, at));
        }
        let value = if is_number && takes != Takes::Time {
            Value::Units(self.number(value, &at, &format!("`{word}`"), example)?)
        } else {
            Value::Time(duration::parse(value).map_err(|what| self.error(what, example, at))?)
        };
        self.seen.push((option, span));
        Ok(value)
    }

    fn number(
        &self,
        word: &str,
        span: &Range<usize>,
        name: &str,
        example: &'static str,
    ) -> Result<u64, LimitError> {
        let digits = word.replace('_', "");
        if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_digit()) {
            let what = format!("{name} is a whole number, not `{}`", bounded(word));
            return Err(self.error(what, example, span.clone()));
        }
        digits.parse().map_err(|_| {
            self.error(format!("{name} of {} is too large", bounded(word)), example, span.clone())
        })
    }
}
