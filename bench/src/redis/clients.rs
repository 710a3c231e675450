//! The client processes of one trial: the bench starts itself again for each, waits until all are
//! ready, lets them go at once, and collects what they print.

use super::client::{Job, Line, Outcome};
use crate::Fallible;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

pub struct Clients(Vec<ClientProcess>);

struct ClientProcess {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Clients {
    pub fn ready(jobs: &[Job]) -> Fallible<Self> {
        let mut clients = Self(jobs.iter().map(ClientProcess::start).collect::<Fallible<_>>()?);
        for client in &mut clients.0 {
            match client.line()? {
                Line::Ready => {}
                Line::Done(_) => return Err("a client was done before it began".into()),
            }
        }
        Ok(clients)
    }

    pub fn go(&mut self) -> Fallible<()> {
        for client in &mut self.0 {
            let mut stdin = client.process.stdin.take().ok_or("a client was started twice")?;
            stdin.write_all(b"go\n")?;
        }
        Ok(())
    }

    pub fn outcomes(mut self) -> Fallible<Vec<Outcome>> {
        let outcome = |client: &mut ClientProcess| match client.line()? {
            Line::Done(outcome) => Ok(outcome),
            Line::Ready => Err("a client was ready twice".into()),
        };
        self.0.iter_mut().map(outcome).collect()
    }
}

impl ClientProcess {
    fn start(job: &Job) -> Fallible<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("client")
            .arg(serde_json::to_string(job)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(process.stdout.take().ok_or("a client has no output")?);
        Ok(Self { process, lines })
    }

    fn line(&mut self) -> Fallible<Line> {
        let mut text = String::new();
        self.lines.read_line(&mut text)?;
        serde_json::from_str(&text).map_err(|_| format!("a client printed {text:?}").into())
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // Usually it is about to end by itself; the server it talks to ends in any case.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
