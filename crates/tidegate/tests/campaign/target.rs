//! The service under attack, in a thread of its own, and what has to hold of it afterwards.

use crate::grammar::Aim;
use crate::service::{LIMIT, SLOTS, Service};
use crate::{answer, wire};
use std::net::SocketAddr;
use std::sync::{Mutex, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::servers::wait_until;
use tidegate::http::Peer;
use tidegate::listener::{Listener, ListenerStats};
use tokio::sync::oneshot;

/// Far more than anything takes here.
const PATIENCE: Duration = Duration::from_secs(20);

/// The name of threads that must not panic.
const SERVER: &str = "under attack";

/// What panicked in such threads.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    service: Service,
    stats: ListenerStats,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Target {
    pub(crate) fn start(service: Service) -> Self {
        watch_panics();
        let app = service.app();
        let (stop, stopped) = oneshot::channel();
        let (here, there) = std::sync::mpsc::channel();
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = Listener::bind("127.0.0.1:0").await.unwrap();
                here.send((listener.local_addr().unwrap(), listener.stats())).unwrap();
                let app = app.into_make_service_with_connect_info::<Peer>();
                tokio::select! {
                    served = axum::serve(listener, app) => served.unwrap(),
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name(SERVER.into()).spawn(serve).unwrap();
        let (address, stats) = there.recv().unwrap();
        Self { address, service, stats, stop, thread }
    }

    /// Ends it, and gives what did not hold.
    pub(crate) fn finish(self) -> Vec<String> {
        let mut wrong = self.service.wrong();
        let (served, most) = self.service.served_and_most();
        if served == 0 || most < LIMIT {
            wrong.push(format!("the campaign was too weak: {served} were served, at most {most} for a key"));
        }
        let plain = wire::plain(self.address, &plain_request(self.service.aim()));
        if !answer::is_served(&plain) {
            wrong.push(format!(
                "a plain request is not served afterwards: {}",
                String::from_utf8_lossy(&plain)
            ));
        }
        let all_are_gone = || self.stats.open() == 0 && self.service.free_slots() == SLOTS;
        wait_until("all connections and slots are free", PATIENCE, all_are_gone);
        drop(self.stop);
        if self.thread.join().is_err() {
            wrong.push("the server's thread panicked".into());
        }
        let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.extend(panics.iter().map(|panic| format!("a panic: {panic}")));
        wrong
    }
}

/// One that nobody has sent before, from a client whom nobody has posed as.
fn plain_request(aim: Aim) -> String {
    let body = r#"{"goods": 424242}"#;
    match aim {
        Aim::Json => format!(
            "POST /plain HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        ),
        _ => "GET /plain HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-api-key: plain\r\n\r\n".into(),
    }
}

/// The runtime catches a panic of a task, so that nobody would notice.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some(SERVER) {
                PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(panic.to_string());
            }
            before(panic);
        }));
    });
}
