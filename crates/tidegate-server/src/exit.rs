//! How a command ends: a code that means something, and a message that one can act on.

use crate::terminal;
use std::io;
use std::process::ExitCode;

/// How a command ended that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All of what was asked for.
    Done,
    /// Not all of it; each case was told.
    NotAll,
}

/// What was asked for cannot be: code 2, as for a wrong option.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The last lines of every command's help.
pub(crate) const CODES: &str = "\
Exit codes:
  0  done
  1  refused, not found or failed; where several were asked for, at least one of them
  2  the command line is wrong, and nothing was done";

/// Tells what went wrong, and gives the code.
pub(crate) fn code(outcome: anyhow::Result<Ended>) -> ExitCode {
    let error = match outcome {
        Ok(Ended::Done) => return ExitCode::SUCCESS,
        Ok(Ended::NotAll) => return ExitCode::from(1),
        Err(error) => error,
    };
    let is_pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if error.chain().any(|cause| cause.downcast_ref().is_some_and(is_pipe)) {
        // `tidegate … | head` has seen enough.
        return ExitCode::SUCCESS;
    }
    let text: Vec<String> = error.chain().map(|cause| terminal::plain(&cause.to_string())).collect();
    terminal::tell(&format!("error: {}", text.join(": ")));
    ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
}
