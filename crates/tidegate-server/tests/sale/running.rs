//! The program `tidegate sale`, started as its users do.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;
use testkit::servers::wait_until;

/// For machines that are busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What the operators of a sale on servers give it.
pub(crate) const ADMIN: &str = "operators-of-the-test";
pub(crate) const SECRET: &str = "5ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7";

/// A sale that runs, and what it has printed so far.
pub(crate) struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) printed: String,
    /// What operators sign in with.
    admin: String,
    is_on_servers: bool,
}

pub(crate) fn tidegate(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .arg("sale")
        .args(args)
        .current_dir(folder)
        .env_remove("TIDEGATE_ADMIN_TOKEN")
        .env_remove("TIDEGATE_SALE_SECRET")
        .stdin(Stdio::null());
    command
}

impl Running {
    /// Where it answers.
    pub(crate) fn url(&self) -> &str {
        self.word("books").trim_end_matches("/sale/demo/books")
    }

    /// A call of the admin API; what it answers as `data`.
    pub(crate) fn admin(&self, what: &str, body: &str) -> Value {
        let (token, url) = (&self.admin, self.url());
        let script = format!("curl -sS -H 'Authorization: Bearer {token}' -d '{body}' {url}/admin/{what}");
        let told: Value = serde_json::from_str(&shell(&script)).unwrap();
        assert_eq!(told["code"], 200, "{what}: {told}");
        told["data"].clone()
    }

    /// Starts it on a port that the system chooses, and reads up to the last line.
    pub(crate) fn start(folder: &Path, args: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", folder, args)
    }

    /// The same at this address.
    pub(crate) fn start_at(address: &str, folder: &Path, args: &[&str]) -> Self {
        let args = [&["--listen", address], args].concat();
        let is_on_servers = args.contains(&"--redis");
        let mut command = tidegate(folder, &args);
        if is_on_servers {
            command.envs([("TIDEGATE_ADMIN_TOKEN", ADMIN), ("TIDEGATE_SALE_SECRET", SECRET)]);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut printed = String::new();
        while !printed.contains("docs/sale.md") {
            if out.read_line(&mut printed).unwrap() == 0 {
                let mut error = String::new();
                child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
                panic!("it ended: {printed}{error}");
            }
        }
        let given = args.iter().position(|arg| *arg == "--admin-token").map(|at| args[at + 1].to_owned());
        let mut running = Self { child, out, printed, admin: ADMIN.to_owned(), is_on_servers };
        if !is_on_servers {
            running.admin = given.unwrap_or_else(|| running.word("admin token").to_owned());
        }
        running
    }

    /// Lines for a shell that buy a unit as somebody new: those that are printed, or the same
    /// with a token that the operators have signed.
    pub(crate) fn buying(&self) -> String {
        if !self.is_on_servers {
            return self.lines("Buy from it").join("\n");
        }
        let (url, user) = (self.url(), format!("guest-{:08x}", fastrand::u32(..)));
        let secret = tidegate_sale::Secret::from_hex(SECRET).unwrap();
        let tokens = tidegate_sale::SignedTokens::new(&secret);
        let token = tokens.issue(&user.parse().unwrap(), Duration::from_secs(600));
        let curl = format!("curl -sS -H 'Authorization: Bearer {token}'");
        let data = r#"sed 's/.*"data":"\([^"]*\)".*/\1/'"#;
        format!(
            "WAY=$({curl} '{url}/randomPath?goodsId=demo' | {data})\n\
             ORDER=$({curl} -X POST \"{url}/$WAY/decrStock?goodsId=demo&decrStock=1\" | {data}); echo \"order $ORDER\""
        )
    }

    fn curl_books(&self) -> String {
        format!("curl -sS --max-time 30 -H 'Authorization: Bearer {}' {}", self.admin, self.word("books"))
    }

    /// The indented lines below the one that begins so.
    pub(crate) fn lines(&self, below: &str) -> Vec<&str> {
        let lines = self.printed.lines().skip_while(|line| !line.starts_with(below));
        let lines: Vec<&str> =
            lines.skip(2).take_while(|line| line.starts_with("  ")).map(str::trim_start).collect();
        assert!(!lines.is_empty(), "{below} in {}", self.printed);
        lines
    }

    /// What stands behind this word.
    pub(crate) fn word(&self, name: &str) -> &str {
        let line = self.printed.lines().find_map(|line| line.trim_start().strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {}", self.printed)).trim()
    }

    /// The books, if they can be read now.
    pub(crate) fn books_now(&self) -> Option<Value> {
        let script = format!("{} --max-time 5 || true", self.curl_books());
        let told: Value = serde_json::from_str(&shell(&script)).ok()?;
        (told["code"] == 200).then(|| told["data"].clone())
    }

    pub(crate) fn books(&self) -> Value {
        let told: Value = serde_json::from_str(&shell(&self.curl_books())).unwrap();
        assert_eq!(told["data"]["balanced"], true, "{told}");
        told["data"].clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it by this signal, which has to go well; the rest of what it printed.
    pub(crate) fn end(mut self, signal: Signal) -> String {
        self.signal(signal);
        let mut ended = None;
        wait_until("it has ended", PATIENCE, || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        let (mut out, mut error) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert_eq!(ended.unwrap().code(), Some(0), "{out}{error}");
        out
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn shell(script: &str) -> String {
    let Output { status, stdout, stderr } = Command::new("sh").args(["-ec", script]).output().unwrap();
    let (out, error) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{script}\n{out}{error}");
    out
}
