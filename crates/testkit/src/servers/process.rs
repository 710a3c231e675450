//! A server's process: started, stopped, continued, killed, and never left behind.

use super::wait::wait_for;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The file in a server's folder that holds what it said, over all its starts.
pub(super) const LOG: &str = "server.log";

/// Kills the server (`$0`) and removes its folder (`$1`) unless told that it is done. The
/// end of its input means that the test process is gone, in whatever way.
const GUARD: &str = r#"read -r word; [ "$word" = done ] || { kill -9 "$0"; rm -rf "$1"; }"#;

/// A running child. Dropping it kills it.
pub(super) struct Process {
    child: Child,
    guard: Child,
    is_frozen: bool,
}

impl Process {
    /// Starts it for as long as this process lives. What it says goes to [`LOG`] in its
    /// folder.
    pub(super) fn start(command: &mut Command, folder: &Path) -> Self {
        let log = || -> Stdio {
            let file = OpenOptions::new().create(true).append(true).open(folder.join(LOG));
            file.expect("a server's folder can be written to").into()
        };
        let child = spawn(command.stdin(Stdio::null()).stdout(log()).stderr(log()));
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, &child.id().to_string()]).arg(folder).stdin(Stdio::piped());
        guard.stdout(Stdio::null()).stderr(Stdio::null());
        Self { child, guard: spawn(&mut guard), is_frozen: false }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// It ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// Stops it, and returns when it stands still.
    pub(super) fn freeze(&mut self) {
        self.signal(Signal::STOP);
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), stopped).expect("a child that was started can be waited for");
        self.is_frozen = true;
    }

    pub(super) fn thaw(&mut self) {
        self.signal(Signal::CONT);
        self.is_frozen = false;
    }

    /// Asks it to end, and kills it if it does not in time.
    pub(super) fn end(mut self, signal: Signal, at_most: Duration) {
        self.signal(signal);
        wait_for(at_most, || self.has_ended());
    }

    /// What the guard sees of a test process that is killed.
    #[cfg(test)]
    pub(super) fn abandon(&mut self) {
        drop(self.guard.stdin.take());
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a child that was not reaped can be signalled");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL also ends what is stopped. Nothing here may panic: the test may be panicking.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(mut word) = self.guard.stdin.take() {
            let _ = word.write_all(b"done\n");
        }
        let _ = self.guard.wait();
    }
}

/// In a process group of its own, so that Ctrl-C reaches the test alone, and the guard
/// lives to clean up.
fn spawn(command: &mut Command) -> Child {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.process_group(0).spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("{program} is not installed: run ./test, which installs it")
        }
        Err(error) => panic!("{program} does not start: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::wait_until;

    fn sleeper(folder: &Path) -> Process {
        Process::start(Command::new("sleep").arg("1000"), folder)
    }

    #[test]
    #[should_panic(expected = "no-such-server is not installed: run ./test, which installs it")]
    fn a_missing_program_says_how_to_get_it() {
        Process::start(&mut Command::new("no-such-server"), tempfile::tempdir().unwrap().path());
    }

    #[test]
    fn a_test_process_that_dies_takes_server_and_folder_along() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = sleeper(folder.path());
        process.abandon();
        wait_until("the guard has killed it", Duration::from_secs(5), || process.has_ended());
        process.guard.wait().unwrap();
        assert!(!folder.path().exists());
    }

    #[test]
    fn a_guard_that_is_told_leaves_the_folder_alone() {
        let folder = tempfile::tempdir().unwrap();
        drop(sleeper(folder.path()));
        assert!(folder.path().exists());
    }
}
