//! A real browser, without a window, on a page of the test's own.

use super::process::Process;
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Chromium with a new, empty profile. Dropping it closes it.
pub struct Browser {
    process: Option<Process>,
    /// Its profile; removed after it.
    _profile: TempDir,
}

/// It takes its own children along when it is asked to end.
const END_AT_MOST: Duration = Duration::from_secs(10);

impl Browser {
    /// Opens a page.
    ///
    /// # Panics
    /// If no Chromium is installed.
    pub fn open(url: &str) -> Self {
        let profile = tempfile::tempdir().expect("a temporary folder can be made");
        let mut command = Command::new(program());
        command.args(["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic"]);
        // Nothing but the page may be asked for.
        command.args(["--no-first-run", "--disable-background-networking", "--disable-component-update"]);
        command.args(["--disable-sync", "--no-proxy-server"]);
        // Its sandbox does not start as root; the page is the test's own.
        command.arg("--no-sandbox");
        command.arg(format!("--user-data-dir={}", profile.path().join("profile").display())).arg(url);
        let process = Process::start(&mut command, profile.path());
        Self { process: Some(process), _profile: profile }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.end(Signal::TERM, END_AT_MOST);
        }
    }
}

/// Debian's name for it, or that of others.
fn program() -> &'static str {
    let is_there = |name: &&str| {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).any(|folder| Path::new(&folder).join(name).is_file())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(is_there).unwrap_or("chromium")
}
