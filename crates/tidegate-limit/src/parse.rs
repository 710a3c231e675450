//! A limit from text. Reads words, fills the builder, and says where it went wrong.
//!
//! The rules of what goes with what are the builder's; here is only the grammar.

use crate::build::{LimitBuilder, Part, Shape};
use crate::{Limit, LimitError, duration, error::bounded};
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

/// No right limit is longer; a stranger's text is not worth more.
const TEXT_MAX: usize = 256;

/// Algorithms that have a word of their own; the others are named by what joins amount and period.
const SHAPES: [Shape; 5] =
    [Shape::TokenBucket, Shape::FixedWindow, Shape::SlidingWindow, Shape::SlidingLog, Shape::Leaky];

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        if text.len() > TEXT_MAX {
            let what = format!("a limit is at most {TEXT_MAX} bytes of text, this has {}", text.len());
            let fits = (0..=TEXT_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            return Err(LimitError::new(what, "1000/s burst 20").at(text, fits..text.len()));
        }
        let mut parser = Parser { text, words: words(text), next: 0, seen: Vec::new(), shapes: Vec::new() };
        parser.limit()
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
    shapes: Vec<Shape>,
}

type Word<'a> = (&'a str, Range<usize>);

impl<'a> Parser<'a> {
    fn limit(&mut self) -> Result<Limit, LimitError> {
        let mut builder: Option<LimitBuilder> = None;
        let mut options: Vec<Word<'a>> = Vec::new();
        let mut values: Vec<Option<Word<'a>>> = Vec::new();
        while let Some((word, span)) = self.word() {
            if word.starts_with(|c: char| c.is_ascii_digit()) {
                if builder.is_some() {
                    let what = format!("`{}` is a second amount", bounded(word));
                    return Err(self.error(what, "1000/s burst 20", span));
                }
                builder = Some(self.amount(word, span)?);
            } else {
                let takes_value = self.note(word, &span)?;
                options.push((word, span));
                values.push(if takes_value { self.word() } else { None });
            }
        }
        let Some(mut builder) = builder else {
            let end = self.text.len();
            return Err(self.error("there is no amount", "1000/s", end..end));
        };
        for ((word, span), value) in options.into_iter().zip(values) {
            builder = self.option(builder, word, &span, value)?;
        }
        builder.checked().map_err(|(part, error)| {
            let end = self.text.len();
            let span = self.seen.iter().find(|(p, _)| *p == part).map_or(0..end, |(_, s)| s.clone());
            error.at(self.text, span)
        })
    }

    fn word(&mut self) -> Option<Word<'a>> {
        let span = self.words.get(self.next)?.clone();
        self.next += 1;
        Some((&self.text[span.clone()], span))
    }

    fn error(&self, what: impl Into<String>, example: &'static str, span: Range<usize>) -> LimitError {
        LimitError::new(what, example).at(self.text, span)
    }

    /// `1000 / s`, `5 per 10s`, `20 every 1s`, `10 concurrent`.
    fn amount(&mut self, word: &'a str, span: Range<usize>) -> Result<LimitBuilder, LimitError> {
        let amount = self.number(word, &span, "the amount", "1000/s")?;
        self.seen.push((Part::Amount, span.clone()));
        let after = "after the amount comes `/s`, `per 10s`, `every 1s` or `concurrent`";
        let Some((join, join_span)) = self.word() else {
            return Err(self.error(after, "1000/s", span.end..span.end));
        };
        match join {
            "concurrent" => {
                self.note_shape(Shape::Concurrency, &join_span)?;
                Ok(Limit::concurrent(amount))
            }
            "/" | "per" => Ok(Limit::per(amount, self.period(join, &join_span, "5 per 10s")?)),
            "every" => {
                self.note_shape(Shape::Ticked, &join_span)?;
                Ok(Limit::every(amount, self.period(join, &join_span, "20 every 1s")?))
            }
            other => Err(self.error(format!("{after}, not `{}`", bounded(other)), "1000/s", join_span)),
        }
    }

    fn period(
        &mut self,
        join: &str,
        at: &Range<usize>,
        example: &'static str,
    ) -> Result<Duration, LimitError> {
        let Some((word, span)) = self.word() else {
            return Err(self.error(format!("`{join}` needs a period"), example, at.end..at.end));
        };
        let us = match duration::unit_us(word) {
            Some(us) => us,
            None => duration::parse(word).map_err(|what| self.error(what, example, span.clone()))?,
        };
        self.seen.push((Part::Period, span));
        Ok(Duration::from_micros(us))
    }

    /// Remembers where an option stands; true if a value follows it.
    fn note(&mut self, word: &str, span: &Range<usize>) -> Result<bool, LimitError> {
        if let Some(shape) = SHAPES.into_iter().find(|shape| shape.word() == word) {
            self.note_shape(shape, span)?;
            return Ok(false);
        }
        let part = match word {
            "burst" => Part::Burst,
            "wait" => Part::Wait,
            "warmup" => Part::Warmup,
            "cap" => Part::Cap,
            "queue" => Part::Queue,
            "capacity" => Part::Capacity,
            "slices" => Part::Slices,
            "offset" => Part::Offset,
            other => return Err(self.unknown(other, span.clone())),
        };
        if self.seen.iter().any(|(seen, _)| *seen == part) {
            let what = format!("`{word}` stands there twice");
            return Err(self.error(what, "1000/s burst 20 wait 1s", span.clone()));
        }
        self.seen.push((part, span.clone()));
        Ok(true)
    }

    /// Remembers where an algorithm is named, if it goes with those that were before.
    fn note_shape(&mut self, shape: Shape, span: &Range<usize>) -> Result<(), LimitError> {
        // A ticked bucket is a token bucket, and may be called one.
        let is_bucket = |shape: Shape| matches!(shape, Shape::TokenBucket | Shape::Ticked);
        let others =
            self.shapes.iter().filter(|other| **other == shape || !(is_bucket(**other) && is_bucket(shape)));
        if let Some(other) = others.into_iter().next() {
            let joined = |shape: Shape| matches!(shape, Shape::Ticked | Shape::Concurrency);
            if joined(*other) || joined(shape) {
                return Err(other.clash(shape).at(self.text, span.clone()));
            }
            let what = format!("`{}` is a second algorithm", shape.word());
            return Err(self.error(what, "5 per 10s sliding-log", span.clone()));
        }
        self.shapes.push(shape);
        self.seen.push((Part::Shape, span.clone()));
        Ok(())
    }

    fn unknown(&self, word: &str, span: Range<usize>) -> LimitError {
        let what = format!(
            "`{}` is not a word of a limit (burst, wait, warmup, cap, queue, capacity, slices, offset, \
             token-bucket, leaky, fixed-window, sliding-window, sliding-log)",
            bounded(word)
        );
        self.error(what, "1000/s burst 20 wait 1s", span)
    }

    fn option(
        &mut self,
        builder: LimitBuilder,
        word: &str,
        span: &Range<usize>,
        value: Option<Word<'a>>,
    ) -> Result<LimitBuilder, LimitError> {
        if let Some(shape) = SHAPES.into_iter().find(|shape| shape.word() == word) {
            return Ok(builder.named(shape));
        }
        let example = match word {
            "burst" => "1000/s burst 20",
            "wait" => "1000/s wait 500ms",
            "warmup" => "100/s warmup 30s",
            "cap" => "20 every 1s cap 100",
            "queue" => "leaky 50/s queue 100",
            "capacity" => "leaky 50/s capacity 100",
            "offset" => "100/day fixed-window offset 8h",
            _ => "5 per 10s sliding-window slices 20",
        };
        let kind = match word {
            "burst" => "a number of units or a duration",
            "wait" | "warmup" | "offset" => "a duration",
            _ => "a number",
        };
        let Some((value, at)) = value else {
            let what = format!("`{word}` needs {kind}");
            return Err(self.error(what, example, span.end..span.end));
        };
        let misfit =
            || self.error(format!("`{word}` needs {kind}, not `{}`", bounded(value)), example, at.clone());
        let is_number = value.chars().all(|c| c.is_ascii_digit() || c == '_');
        let starts_right = value.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        if !starts_right || (!is_number && !matches!(word, "burst" | "wait" | "warmup" | "offset")) {
            return Err(misfit());
        }
        if is_number && matches!(word, "burst" | "cap" | "queue" | "capacity" | "slices") {
            let n = self.number(value, &at, &format!("`{word}`"), example)?;
            return Ok(match word {
                "burst" => builder.burst(n),
                "cap" => builder.cap(n),
                "queue" => builder.queue(n),
                "capacity" => builder.capacity(n),
                _ => builder.slices(n),
            });
        }
        let us = duration::parse(value).map_err(|what| self.error(what, example, at.clone()))?;
        let length = Duration::from_micros(us);
        Ok(match word {
            "burst" => builder.burst_for(length),
            "wait" => builder.wait(length),
            "offset" => builder.offset(length),
            _ => builder.warmup(length),
        })
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
