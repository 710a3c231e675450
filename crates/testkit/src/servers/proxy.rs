//! A network that misbehaves on request, between a client and a server.
//!
//! It knows nothing of what it carries. Each connection has two threads, one a direction;
//! they end with their connection, and all with the proxy.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Listens on a port of its own, and passes everything on until it is told otherwise.
pub struct FaultProxy {
    shared: Arc<Shared>,
    addr: SocketAddr,
    listener: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// In front of a server, given as `127.0.0.1:PORT`. The server need not be up.
    ///
    /// # Panics
    /// Where the target is no address.
    pub fn start(target: &str) -> Self {
        let target = target.parse().expect("a target is an address such as 127.0.0.1:6379");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
        let addr = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared { target, state: Mutex::default(), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        let listener = Some(thread::spawn(move || accept(&listener, &accepting)));
        Self { shared, addr, listener }
    }

    /// `127.0.0.1:PORT`.
    pub fn addr(&self) -> String {
        self.addr.to_string()
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Passes everything on again, also what was held back.
    pub fn pass(&self) {
        self.shared.state().silent = 0;
        self.set(Mode::Pass);
    }

    /// Keeps connections open and passes nothing on, either way. New connections are
    /// accepted, and silent.
    pub fn stall(&self) {
        self.set(Mode::Stall);
    }

    /// The connections that there are stay open and pass nothing on any more, either way. New
    /// ones are served.
    pub fn silence(&self) {
        let mut state = self.shared.state();
        state.silent = state.accepted;
    }

    /// Passes questions on, but of the next answer only so many bytes; then closes that
    /// connection on both sides. After that, it passes everything on again.
    pub fn cut_in_reply(&self, after_bytes: usize) {
        self.set(Mode::Cut(after_bytes));
    }

    /// Closes all connections, and new ones at once.
    pub fn refuse(&self) {
        self.set(Mode::Refuse);
        self.shared.close_all();
    }

    /// Holds each piece of an answer back for so long.
    pub fn delay(&self, by: Duration) {
        self.set(Mode::Delay(by));
    }

    /// How many connections it has accepted so far, including those closed at once.
    pub fn connections(&self) -> usize {
        self.shared.state().accepted
    }

    fn set(&self, mode: Mode) {
        self.shared.state().mode = mode;
        self.shared.changed.notify_all();
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.set(Mode::Gone);
        self.shared.close_all();
        // The listener looks at the mode only when somebody comes.
        let woken = TcpStream::connect(self.addr).is_ok();
        if let Some(listener) = self.listener.take().filter(|_| woken) {
            let _ = listener.join();
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Mode {
    #[default]
    Pass,
    Stall,
    Cut(usize),
    Delay(Duration),
    Refuse,
    Gone,
}

struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    mode: Mode,
    accepted: usize,
    /// Connections up to this number pass nothing on.
    silent: usize,
    /// Both ends of what lives, to be closed from outside, by the number of the connection.
    ends: Vec<(usize, TcpStream)>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mode, once this connection is not to stall.
    fn unstalled(&self, nth: usize) -> MutexGuard<'_, State> {
        let stalls = |state: &mut State| match state.mode {
            Mode::Stall => true,
            Mode::Pass | Mode::Cut(_) | Mode::Delay(_) => nth <= state.silent,
            Mode::Refuse | Mode::Gone => false,
        };
        self.changed.wait_while(self.state(), stalls).unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes the time, unless the proxy is dropped.
    fn pause(&self, by: Duration) {
        let lives = |state: &mut State| state.mode != Mode::Gone;
        drop(self.changed.wait_timeout_while(self.state(), by, lives));
    }

    /// Remembers an end, unless all have to be closed; false then.
    fn keep(&self, nth: usize, end: &TcpStream) -> io::Result<bool> {
        let copy = end.try_clone()?;
        let mut state = self.state();
        let may_live = !matches!(state.mode, Mode::Refuse | Mode::Gone);
        if may_live {
            state.ends.push((nth, copy));
        }
        Ok(may_live)
    }

    fn close(&self, nth: usize) {
        self.state().ends.retain(|(number, end)| {
            let stays = *number != nth;
            if !stays {
                let _ = end.shutdown(Shutdown::Both);
            }
            stays
        });
    }

    fn close_all(&self) {
        for (_, end) in self.state().ends.drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        let nth = {
            let mut state = shared.state();
            if state.mode == Mode::Gone {
                return;
            }
            state.accepted += 1;
            state.accepted
        };
        if let Ok(client) = client {
            let shared = Arc::clone(shared);
            thread::spawn(move || {
                // An error is the end of the connection, and nothing else.
                let _ = serve(&shared, nth, &client);
                shared.close(nth);
            });
        }
    }
}

/// Carries one connection: answers on this thread, questions on another.
fn serve(shared: &Arc<Shared>, nth: usize, client: &TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    if !shared.keep(nth, client)? {
        return Ok(());
    }
    drop(shared.unstalled(nth));
    let server = TcpStream::connect(shared.target)?;
    server.set_nodelay(true)?;
    if !shared.keep(nth, &server)? {
        return Ok(());
    }
    thread::scope(|both| {
        let questions = both.spawn(|| carry_questions(shared, nth, client, &server));
        let answers = carry_answers(shared, nth, &server, client);
        shared.close(nth);
        let _ = questions.join();
        answers
    })
}

fn carry_questions(
    shared: &Shared,
    nth: usize,
    mut client: &TcpStream,
    mut server: &TcpStream,
) -> io::Result<()> {
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let length = client.read(&mut chunk)?;
        drop(shared.unstalled(nth));
        if length == 0 {
            // The answers to what was asked before are still wanted.
            return server.shutdown(Shutdown::Write);
        }
        server.write_all(&chunk[..length])?;
    }
}

fn carry_answers(
    shared: &Shared,
    nth: usize,
    mut server: &TcpStream,
    mut client: &TcpStream,
) -> io::Result<()> {
    let mut chunk = vec![0; 16 * 1024];
    let mut left = None;
    loop {
        let length = server.read(&mut chunk)?;
        let mode = {
            let mut state = shared.unstalled(nth);
            match state.mode {
                // This connection takes the cut upon itself.
                Mode::Cut(bytes) if length > 0 => {
                    state.mode = Mode::Pass;
                    left = Some(bytes);
                    Mode::Pass
                }
                mode => mode,
            }
        };
        if let Mode::Delay(by) = mode {
            shared.pause(by);
        }
        let passed = left.map_or(length, |left: usize| left.min(length));
        client.write_all(&chunk[..passed])?;
        left = left.map(|left| left - passed);
        if length == 0 || left == Some(0) {
            return Ok(());
        }
    }
}
