//! The client processes of one trial: the bench starts itself again for each, waits until all are
//! ready, lets them go at once, and collects what they print.

use super::client::{Job, Line, Outcome};
use crate::Fallible;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

pub struct Crew(Vec<Member>);

struct Member {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Crew {
    pub fn ready(jobs: &[Job]) -> Fallible<Self> {
        let mut crew = Self(jobs.iter().map(Member::start).collect::<Fallible<_>>()?);
        for member in &mut crew.0 {
            match member.line()? {
                Line::Ready => {}
                Line::Done(_) => return Err("a client was done before it began".into()),
            }
        }
        Ok(crew)
    }

    pub fn go(&mut self) -> Fallible<()> {
        for member in &mut self.0 {
            let mut stdin = member.process.stdin.take().ok_or("a client was told to go twice")?;
            stdin.write_all(b"go\n")?;
        }
        Ok(())
    }

    pub fn outcomes(mut self) -> Fallible<Vec<Outcome>> {
        let outcome = |member: &mut Member| match member.line()? {
            Line::Done(outcome) => Ok(outcome),
            Line::Ready => Err("a client was ready twice".into()),
        };
        self.0.iter_mut().map(outcome).collect()
    }
}

impl Member {
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

impl Drop for Member {
    fn drop(&mut self) {
        // Usually it is about to end by itself; the server it talks to ends in any case.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
