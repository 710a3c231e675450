//! A server in a thread of its own, a client that is only a socket, and a log of verdicts.

use axum::Router;
use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::servers::wait_until;
use tidegate::http::Peer;
use tidegate::listener::{Listener, ListenerStats};
use tidegate::rules::{Observer, Outcome, Record};
use tidegate::{Clock, MonotonicClock, Timestamp};
use tokio::sync::oneshot;

/// How much later than it could have been anything may happen on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(2);

/// Serves until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) stats: ListenerStats,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(app: Router) -> Self {
        Self::listening("127.0.0.1:0", app, |listener| listener)
    }

    /// Behind a listener with settings.
    pub(crate) fn listening(
        address: &'static str,
        app: Router,
        with: impl FnOnce(Listener) -> Listener + Send + 'static,
    ) -> Self {
        Self::serving(address, |listener| async {
            let service = app.into_make_service_with_connect_info::<Peer>();
            axum::serve(with(listener), service).await.unwrap();
        })
    }

    /// With a server of its own on a listener.
    pub(crate) fn serving<F: Future<Output = ()>>(
        address: &'static str,
        serve: impl FnOnce(Listener) -> F + Send + 'static,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (here, there) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = Listener::bind(address).await.unwrap();
                here.send((listener.local_addr().unwrap(), listener.stats())).unwrap();
                tokio::select! {
                    () = serve(listener) => {}
                    _ = stopped => {}
                }
            });
        });
        let (address, stats) = there.recv().unwrap();
        Self { address, stats, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends a GET, and leaves it to the caller to read the answer.
    pub(crate) fn get(&self, path: &str) -> Socket {
        self.get_with(path, "")
    }

    /// The same with header lines, each ended.
    pub(crate) fn get_with(&self, path: &str, lines: &str) -> Socket {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{lines}\r\n");
        (&stream).write_all(request.as_bytes()).unwrap();
        Socket { reader: BufReader::new(stream) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// A client that is only a socket.
pub(crate) struct Socket {
    reader: BufReader<TcpStream>,
}

impl Socket {
    /// Reads on, up to and with this text.
    pub(crate) fn read_until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            let count = self.reader.read_until(*end.as_bytes().last().unwrap(), &mut read).unwrap();
            assert!(count > 0, "it ended before {end:?}: {}", String::from_utf8_lossy(&read));
        }
        String::from_utf8(read).unwrap()
    }

    /// Reads on to the end.
    pub(crate) fn rest(mut self) -> String {
        let mut rest = String::new();
        self.reader.read_to_string(&mut rest).unwrap();
        rest
    }

    /// True if there is an answer by now.
    pub(crate) fn is_answered(&self) -> bool {
        let stream = self.reader.get_ref();
        stream.set_nonblocking(true).unwrap();
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false).unwrap();
        peeked.is_ok()
    }

    /// Goes away.
    pub(crate) fn close(self) {
        self.reader.get_ref().shutdown(Shutdown::Both).unwrap();
    }
}

/// Waits for what has to be so within the slack.
#[track_caller]
pub(crate) fn soon(what: &str, is_so: impl FnMut() -> bool) {
    wait_until(what, SLACK, is_so);
}

/// Notes each verdict, with the time on the machine's clock.
#[derive(Clone, Default)]
pub(crate) struct Log {
    clock: MonotonicClock,
    seen: Arc<Mutex<Vec<(Outcome, Timestamp)>>>,
}

impl Observer for Log {
    fn verdict(&self, record: &Record<'_>) {
        self.seen.lock().unwrap().push((record.outcome(), self.clock.now()));
    }
}

impl Log {
    /// Asserts that the last was let through, after exactly one refusal that said `told`:
    /// not before that time, and within the slack after it.
    #[track_caller]
    pub(crate) fn assert_came_back_in_time(&self, told: Duration) {
        let seen = self.seen.lock().unwrap();
        let [.., (Outcome::Denied, refused), (Outcome::Allowed, passed)] = seen[..] else {
            panic!("a refusal and then a success, not {seen:?}")
        };
        let later = passed.since(refused);
        assert!(later >= told, "after {later:?}, before the {told:?} that it was told");
        assert!(later <= told + SLACK, "after {later:?}, long after the {told:?} that it was told");
    }

    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        self.seen.lock().unwrap().iter().map(|(outcome, _)| *outcome).collect()
    }
}
