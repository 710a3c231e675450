//! A journal, and the program run on it.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;
use testkit::servers::{PostgresServer, wait_until};
use tidegate_journal::{Call, Guid, JobError, Journal, Record, Worker};
use tokio::runtime::Runtime;

/// For machines that are busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder, a journal in it or on a server, and a runtime to record calls with.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    /// The option that names the journal, and its value.
    pub(crate) option: [String; 2],
    pub(crate) journal: Journal,
    pub(crate) runtime: Runtime,
}

/// One server for all tests of this process; each has a database of its own.
pub(crate) fn server() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    SERVER.get_or_init(PostgresServer::start)
}

/// Each of these on SQLite and on PostgreSQL.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $name() { super::$name(&$crate::place::Place::sqlite()); })*
        }
        mod postgres {
            $(#[test] fn $name() { super::$name(&$crate::place::Place::postgres()); })*
        }
    };
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
        let path = folder.path().join("calls.db");
        let journal = runtime.block_on(Journal::sqlite(&path)).unwrap();
        Self { folder, option: ["--sqlite".to_owned(), path.display().to_string()], journal, runtime }
    }

    pub(crate) fn postgres() -> Self {
        let (folder, runtime, url) = (tempfile::tempdir().unwrap(), runtime(), server().database());
        let journal = runtime.block_on(Journal::postgres(&url)).unwrap();
        Self { folder, option: ["--postgres".to_owned(), url], journal, runtime }
    }

    /// Runs `tidegate journal …` on it, to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Told {
        Told::of(self.command(args).output().unwrap())
    }

    /// The same, which has to end with 0; its standard output.
    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let told = self.run(args);
        assert_eq!(told.code, 0, "{args:?}: {told:?}");
        told.out
    }

    /// The same with `--json`: each line is one object.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Vec<Value> {
        lines(&self.ok(&[args, &["--json"]].concat()))
    }

    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = tidegate(args);
        command.args(&self.option).current_dir(self.folder.path());
        command
    }

    pub(crate) fn defer(&self, call: Call) -> Guid {
        self.runtime.block_on(self.journal.defer(call)).unwrap()
    }

    /// Many at once.
    pub(crate) fn defer_all(&self, calls: impl IntoIterator<Item = Call>) -> Vec<Guid> {
        let all = calls.into_iter().map(|call| self.journal.defer(call));
        self.runtime.block_on(futures_util::future::try_join_all(all)).unwrap()
    }

    /// Runs one statement in its database.
    pub(crate) fn sql(&self, statement: &str) {
        let [option, address] = &self.option;
        if option == "--postgres" {
            server().sql_in(address, statement);
            return;
        }
        let conn = rusqlite::Connection::open(address).unwrap();
        conn.busy_timeout(PATIENCE).unwrap();
        conn.execute_batch(statement).unwrap();
    }

    pub(crate) fn find(&self, guid: &Guid) -> Record {
        self.runtime.block_on(self.journal.find(guid)).unwrap().unwrap()
    }

    /// Records a call that failed for this reason.
    pub(crate) fn failed(&self, call: Call, reason: &'static str) -> Guid {
        let guid = self.defer(call);
        let method = self.find(&guid).method.unwrap();
        let worker = Worker::new(&self.journal)
            .on(&method, move |_: Value| async move { Err::<(), _>(JobError::permanent(reason)) });
        self.runtime.block_on(worker.run_once()).unwrap();
        guid
    }
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// `tidegate journal …`, knowing nothing of where the tests run.
pub(crate) fn tidegate(args: &[&str]) -> Command {
    // A script that runs the tests in its background has them ignore SIGINT and SIGQUIT, and what
    // is ignored is inherited.
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_tidegate")]);
    command.arg("journal").args(args).env_remove("TIDEGATE_JOURNAL").stdin(Stdio::null());
    command
}

pub(crate) fn call(method: &str, params: impl serde::Serialize) -> Call {
    Call::new(method, &params).unwrap()
}

/// What the program said, and with which code it ended.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Told {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().expect("it ends by itself");
        Self { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Both streams.
    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

/// For a shell: waits for a file, or until its folder goes, because the test failed.
pub(crate) fn until_there(file: &Path) -> String {
    let folder = file.parent().unwrap().display();
    format!("while [ -e {folder} ] && [ ! -e {} ]; do sleep 0.05; done", file.display())
}

/// Waits for its end, for at most so long.
pub(crate) fn end(mut child: Child, at_most: Duration) -> Told {
    wait_until("the program ends", at_most, || child.try_wait().unwrap().is_some());
    Told::of(child.wait_with_output().unwrap())
}

#[track_caller]
pub(crate) fn lines(out: &str) -> Vec<Value> {
    let object = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(value.is_object(), "{line}");
        value
    };
    out.lines().map(object).collect()
}
