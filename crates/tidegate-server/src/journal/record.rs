//! A record as people and programs see it.

use super::redact::masked;
use crate::terminal::{Paint, plain};
use owo_colors::Style;
use serde::Serialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidegate_journal::{Record, Status};

/// Whether parameters, results and keys are shown.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(super) struct Privacy {
    /// Show parameters, results and idempotency keys, which may be personal.
    #[arg(long = "params", visible_alias = "show-params")]
    pub(super) shows_params: bool,
}

impl Privacy {
    /// Why the last attempt failed, without what the error repeats of the parameters.
    pub(super) fn error_of(self, record: &Record) -> Option<Cow<'_, str>> {
        let error = record.last_error.as_deref()?;
        if self.shows_params {
            return Some(Cow::Borrowed(error));
        }
        let secrets: Vec<&str> =
            [record.params.as_str()].into_iter().chain(record.result.as_deref()).collect();
        Some(Cow::Owned(masked(error, &secrets, record.key.as_deref())))
    }
}

/// One record for programs. What is not known is `null`; what is redacted is absent.
#[derive(Serialize)]
pub(super) struct Json<'a> {
    guid: &'a str,
    method: Option<&'a str>,
    status: Status,
    attempts: u32,
    priority: u8,
    create_time: Option<String>,
    update_time: Option<String>,
    /// The next attempt, or the end of the lease; of no meaning once it has ended.
    next_time: Option<String>,
    deadline: Option<String>,
    lease_owner: Option<&'a str>,
    last_error: Option<Cow<'a, str>>,
    #[serde(flatten)]
    private: Option<Private<'a>>,
}

#[derive(Serialize)]
struct Private<'a> {
    key: Option<&'a str>,
    params: Text<'a>,
    result: Option<Text<'a>>,
}

/// JSON as it is. What others wrote into the table may be something else: then, as a string.
#[derive(Serialize)]
#[serde(untagged)]
enum Text<'a> {
    Json(Box<RawValue>),
    Other(&'a str),
}

impl<'a> Text<'a> {
    fn of(text: &'a str) -> Self {
        serde_json::from_str(text).map_or(Self::Other(text), Self::Json)
    }
}

impl<'a> Json<'a> {
    pub(super) fn new(record: &'a Record, privacy: Privacy) -> Self {
        let private = privacy.shows_params.then(|| Private {
            key: record.key.as_deref(),
            params: Text::of(&record.params),
            result: record.result.as_deref().map(Text::of),
        });
        let next = Some(record.next_time).filter(|_| !record.status.has_ended());
        Self {
            guid: record.guid.as_str(),
            method: record.method.as_deref(),
            status: record.status,
            attempts: record.attempts,
            priority: record.priority,
            create_time: time(record.create_time),
            update_time: time(record.update_time),
            next_time: next.and_then(time),
            deadline: record.deadline.and_then(time),
            lease_owner: record.lease_owner.as_deref(),
            last_error: privacy.error_of(record),
            private,
        }
    }
}

/// `2026-11-16T06:09:00.123456Z`; nothing for what no calendar has.
pub(super) fn time(time: SystemTime) -> Option<String> {
    time.duration_since(UNIX_EPOCH).ok()?;
    let mut text = String::new();
    write!(text, "{}", humantime::format_rfc3339_micros(time)).is_ok().then_some(text)
}

/// The method's name, which others may have left out, or empty.
pub(super) fn method(record: &Record) -> String {
    match record.method.as_deref() {
        None => "-".to_owned(),
        Some("") => "\"\"".to_owned(),
        Some(name) => plain(name),
    }
}

/// Its word, in a colour of its own.
pub(super) fn status(status: Status, paint: Paint) -> String {
    let style = match status {
        Status::Pending => Style::new().yellow(),
        Status::Running => Style::new().cyan(),
        Status::Done => Style::new().green(),
        Status::Failed | Status::Other(_) => Style::new().red(),
        Status::Expired | Status::Cancelled => Style::new().dimmed(),
    };
    paint.text(&status.to_string(), style)
}

/// How long ago, or how long until: `3m ago`, `in 2h`.
pub(super) fn apart(time: SystemTime, now: SystemTime) -> String {
    match now.duration_since(time) {
        Ok(ago) => format!("{} ago", about(ago)),
        Err(ahead) => format!("in {}", about(ahead.duration())),
    }
}

/// In the one unit that fits.
pub(super) fn about(length: Duration) -> String {
    match length.as_secs() {
        0 => format!("{}ms", length.as_millis()),
        secs @ 1..120 => format!("{secs}s"),
        secs @ 120..7_200 => format!("{}m", secs / 60),
        secs @ 7_200..172_800 => format!("{}h", secs / 3_600),
        secs => format!("{}d", secs / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_no_calendar_has_are_told_as_none_and_do_not_panic() {
        let far = UNIX_EPOCH + Duration::from_secs(1 << 60);
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!((time(far), time(before)), (None, None));
        assert_eq!(time(UNIX_EPOCH).as_deref(), Some("1970-01-01T00:00:00.000000Z"));
    }

    #[test]
    fn lengths_are_told_in_the_unit_that_fits() {
        let told =
            [0.25, 1.0, 119.0, 120.0, 7_199.0, 7_200.0, 172_800.0].map(Duration::from_secs_f64).map(about);
        assert_eq!(told, ["250ms", "1s", "119s", "2m", "119m", "2h", "2d"]);
    }
}
