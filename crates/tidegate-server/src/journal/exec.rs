//! Replaying a record by running a program: parameters on its standard input, the result from
//! its standard output, the verdict from its exit code.
//!
//! Without a shell, so that nothing in the command line means more than it says; whoever wants
//! one writes `sh -c '…'`. The record's own text never stands in the command line.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tidegate_journal::{JobError, METHOD_MAX, Replay};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

/// `sysexits.h`: the input was wrong, and will be so the next time.
pub(super) const PERMANENT: i32 = 65;

/// As much as the journal keeps of a result.
const OUTPUT_MAX: usize = 64 * 1024;

/// What is kept of standard error, from its end, and how much of that becomes the reason.
const ERRORS_MAX: usize = 8 * 1024;
const LINES_MAX: usize = 5;
const REASON_MAX: usize = 1_000;

/// A program that has ended may leave children behind that hold its output open. Nobody waits
/// for them longer than this.
const LEFT_OPEN_MAX: Duration = Duration::from_secs(1);

/// One `--exec method=command`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exec {
    pub(super) method: String,
    program: PathBuf,
    args: Vec<String>,
}

/// What commands get of our environment.
pub(super) type Environment = Vec<(OsString, OsString)>;

/// What any command gets of our environment: where programs are, whose they are, and how they speak.
const PASSED: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"];

/// The variables that commands get: those, and whatever `--env` names.
pub(super) fn environment(named: &[String]) -> Result<Environment, String> {
    if let Some(missing) = named.iter().find(|name| std::env::var_os(name).is_none()) {
        return Err(format!(
            "--env {missing}: there is no such variable here; set it, or leave the option out"
        ));
    }
    let is_passed = |name: &OsStr| {
        name.to_str().is_some_and(|name| {
            PASSED.contains(&name) || name.starts_with("LC_") || named.iter().any(|other| other == name)
        })
    };
    Ok(std::env::vars_os().filter(|(name, _)| is_passed(name)).collect())
}

impl Exec {
    /// Reads the option, and finds the program: a name that is wrong must not cost attempts.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (method, command) =
            text.split_once('=').ok_or("write METHOD=COMMAND, such as 'ship=/usr/local/bin/ship --fast'")?;
        if !(1..=METHOD_MAX).contains(&method.len()) {
            return Err(format!("the method before `=` has to have 1 to {METHOD_MAX} bytes"));
        }
        let mut words = shell_words::split(command).map_err(|error| format!("{error}: close the quotes"))?;
        if words.is_empty() {
            return Err(format!("there is no command after `{method}=`"));
        }
        let name = words.remove(0);
        let program = find(&name, std::env::var_os("PATH").as_deref())
            .ok_or_else(|| format!("there is no program `{name}` that can be run; nothing was replayed"))?;
        Ok(Self { method: method.to_owned(), program, args: words })
    }

    /// Runs it for one record. Dropping the future kills it, with all its children.
    pub(super) async fn run(&self, replay: &Replay, env: &Environment) -> Result<Output, JobError> {
        let mut group = Group(self.spawn(replay, env)?);
        let (mut output, mut errors) = (Kept::new(OUTPUT_MAX), Tail::default());
        let waited = {
            let stdin = group.0.stdin.take();
            let (stdout, stderr) = (group.0.stdout.take(), group.0.stderr.take());
            let feed = async {
                if let Some(mut stdin) = stdin {
                    // A program may not care for its parameters.
                    let _ = stdin.write_all(replay.params.as_bytes()).await;
                }
            };
            let pipes = async {
                tokio::join!(feed, output.read(stdout), errors.read(stderr));
            };
            tokio::pin!(pipes);
            tokio::select! {
                waited = group.0.wait() => {
                    let _ = tokio::time::timeout(LEFT_OPEN_MAX, &mut pipes).await;
                    waited
                }
                () = &mut pipes => group.0.wait().await,
            }
        };
        let status = waited.map_err(|error| JobError::retry(format!("it cannot be waited for: {error}")))?;
        match status.code() {
            Some(0) => Ok(output.result()),
            Some(PERMANENT) => Err(JobError::permanent(errors.reason(status))),
            _ => Err(JobError::retry(errors.reason(status))),
        }
    }

    fn spawn(&self, replay: &Replay, env: &Environment) -> Result<Child, JobError> {
        let spawned = Command::new(&self.program)
            .args(&self.args)
            // Ours may hold passwords and tokens, which are none of the command's business.
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .env("TIDEGATE_GUID", replay.guid.as_str())
            .env("TIDEGATE_METHOD", &*replay.method)
            .env("TIDEGATE_ATTEMPT", replay.attempt.to_string())
            .env("TIDEGATE_LEASE", replay.lease.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        spawned.map_err(|error| {
            JobError::retry(format!("`{}` cannot be started: {error}", self.program.display()))
        })
    }
}

/// A file that may be run, by its path or in the folders of `PATH`.
fn find(name: &str, folders: Option<&OsStr>) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    std::env::split_paths(folders?).map(|folder| folder.join(name)).find(|path| is_program(path))
}

/// A program and its children: killed together, unless it has ended.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // No number once it was waited for: then it may be somebody else's.
        let id = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
        }
    }
}

/// What becomes the record's result.
#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
pub(super) enum Output {
    Json(Box<serde_json::value::RawValue>),
    Text(String),
    Nothing,
    TooLong { stdout_bytes: usize, note: &'static str },
}

/// The first bytes of what was written, and how many there were.
struct Kept {
    bytes: Vec<u8>,
    most: usize,
    len: usize,
}

impl Kept {
    fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, len: 0 }
    }

    /// To the end, also of what is not kept: a full pipe would hold the program up.
    async fn read(&mut self, from: Option<impl AsyncRead + Unpin>) {
        each_piece(from, |piece| {
            self.len = self.len.saturating_add(piece.len());
            let room = self.most.saturating_sub(self.bytes.len());
            self.bytes.extend_from_slice(&piece[..room.min(piece.len())]);
        })
        .await;
    }

    fn result(&self) -> Output {
        if self.len > self.most {
            let note = "more than 65536 bytes were written; they were not kept";
            return Output::TooLong { stdout_bytes: self.len, note };
        }
        let text = String::from_utf8_lossy(&self.bytes);
        match text.trim() {
            "" => Output::Nothing,
            text => serde_json::from_str(text).map_or_else(|_| Output::Text(text.to_owned()), Output::Json),
        }
    }
}

/// The last bytes of what was written.
#[derive(Default)]
struct Tail {
    bytes: VecDeque<u8>,
}

impl Tail {
    async fn read(&mut self, from: Option<impl AsyncRead + Unpin>) {
        each_piece(from, |piece| {
            self.bytes.extend(piece);
            let surplus = self.bytes.len().saturating_sub(ERRORS_MAX);
            self.bytes.drain(..surplus);
        })
        .await;
    }

    /// How it ended, and its last words.
    fn reason(mut self, status: ExitStatus) -> String {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("ended by signal {signal}"),
            (None, None) => status.to_string(),
        };
        let text = String::from_utf8_lossy(self.bytes.make_contiguous());
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LINES_MAX)..].join("\n");
        let surplus = last.chars().count().saturating_sub(REASON_MAX);
        let last: String = last.chars().skip(surplus).collect();
        if last.is_empty() { how } else { format!("{how}: {last}") }
    }
}

async fn each_piece(from: Option<impl AsyncRead + Unpin>, mut take: impl FnMut(&[u8])) {
    let Some(mut from) = from else { return };
    let mut piece = vec![0; 16 * 1024];
    while let Ok(len @ 1..) = from.read(&mut piece).await {
        take(&piece[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_as_a_shell_would_without_being_one() {
        let exec = Exec::parse("ship=sh -c 'a=b; echo $a' \"two words\"").unwrap();
        assert_eq!(exec.method, "ship");
        assert!(exec.program.is_absolute() && exec.program.ends_with("sh"), "{exec:?}");
        assert_eq!(exec.args, ["-c", "a=b; echo $a", "two words"]);
    }

    #[test]
    fn what_cannot_be_run_is_told() {
        let long = format!("{}=true", "m".repeat(METHOD_MAX + 1));
        let cases = [
            ("ship", "METHOD=COMMAND"),
            ("=true", "1 to 64"),
            (&long, "1 to 64"),
            ("ship=", "no command"),
            ("ship=sh 'open", "quotes"),
            ("ship=no-such-program-anywhere", "no program `no-such-program-anywhere`"),
            ("ship=/etc/passwd", "no program `/etc/passwd`"),
            ("ship=/", "no program `/`"),
        ];
        for (text, expected) in cases {
            let told = Exec::parse(text).unwrap_err();
            assert!(told.contains(expected), "{text}: {told}");
        }
    }

    #[test]
    fn the_reason_is_the_last_lines_and_bounded() {
        let status = ExitStatus::from_raw(3 << 8);
        let tail = |text: &str| Tail { bytes: text.bytes().collect() }.reason(status);
        assert_eq!(tail(""), "exit code 3");
        assert_eq!(tail("1\n2\n3\n4\n5\n6\n\n"), "exit code 3: 2\n3\n4\n5\n6");
        assert_eq!(tail(&"ü".repeat(3_000)).chars().count(), "exit code 3: ".len() + REASON_MAX);
        assert_eq!(Tail::default().reason(ExitStatus::from_raw(9)), "ended by signal 9");
    }
}
