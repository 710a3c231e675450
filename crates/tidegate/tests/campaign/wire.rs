//! Sends what the grammar makes over plain sockets, and looks at what comes back.

use crate::answer;
use crate::grammar::Aim;
use crate::requests::{Case, Ending, case};
use crate::target::Target;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Connections at the same time; fewer than there are slots.
const AT_ONCE: usize = 16;
/// After this time a connection counts as one that nobody answers or closes.
const PATIENCE: Duration = Duration::from_secs(20);

/// From whom a plain request comes.
const NOBODY_ELSE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// Sends the cases of these seeds, and gives what is wrong with the answers.
pub(crate) fn attack(target: &Target, aim: Aim, seeds: Range<u64>) -> Vec<String> {
    let address = target.address;
    block_on(async move {
        let (mut wrong, mut running) = (Vec::new(), JoinSet::new());
        for seed in seeds {
            if running.len() >= AT_ONCE {
                wrong.extend(running.join_next().await.and_then(|found| found.unwrap()));
            }
            running.spawn(async move {
                let found = send(address, case(aim, seed)).await;
                found.map(|what| format!("seed {seed}: {what}"))
            });
        }
        while let Some(found) = running.join_next().await {
            wrong.extend(found.unwrap());
        }
        wrong
    })
}

/// The answer to one request.
pub(crate) fn plain(address: SocketAddr, request: &str) -> Vec<u8> {
    block_on(async {
        let mut stream = connect(NOBODY_ELSE, address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        answer
    })
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Connects from an address of this machine.
pub(crate) async fn connect(from: Ipv4Addr, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((from, 0)))?;
    socket.connect(address).await
}

/// What is wrong with what came back.
async fn send(address: SocketAddr, case: Case) -> Option<String> {
    let mut stream = connect(case.from, address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut answers = Vec::new();
    let talk = async {
        let mut start = 0;
        for cut in case.cuts.iter().copied().chain([case.bytes.len()]) {
            // The server may have closed the connection already.
            if stream.write_all(&case.bytes[start..cut]).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
            start = cut;
        }
        match case.ending {
            Ending::Leave => return,
            Ending::Finish => drop(stream.shutdown().await),
            Ending::Wait => {}
        }
        let _ = stream.read_to_end(&mut answers).await;
    };
    let is_over = tokio::time::timeout(PATIENCE, talk).await.is_ok();
    if !is_over {
        return Some(format!("it was neither answered nor closed: {}", case.bytes.escape_ascii()));
    }
    let is_alone = case.is_alone;
    answer::wrong(&answers, is_alone).map(|wrong| format!("{wrong}\nto {}", case.bytes.escape_ascii()))
}
