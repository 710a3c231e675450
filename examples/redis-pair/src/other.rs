//! The second process: how it is started, told and heard.

use crate::half::{Count, Half, Work};
use std::error::Error;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const WORDS: [(Work, &str); 3] =
    [(Work::Meet, "meet"), (Work::Orders, "orders"), (Work::Searches, "searches")];

/// The other process. It ends when its standard input does, so with this one at the latest.
pub(crate) struct Other {
    child: Child,
    tell: Option<ChildStdin>,
    hear: Lines<BufReader<ChildStdout>>,
}

impl Other {
    pub(crate) fn start(url: &str, name: &str) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--half", url, name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let hear = child.stdout.take().ok_or("its output is piped")?;
        Ok(Self { tell: child.stdin.take(), hear: BufReader::new(hear).lines(), child })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn begin(&mut self, work: Work) -> Result<(), Box<dyn Error>> {
        let (_, word) = WORDS.iter().find(|(own, _)| *own == work).ok_or("every work has a word")?;
        let tell = self.tell.as_mut().ok_or("its input is piped")?;
        Ok(writeln!(tell, "{word}")?)
    }

    pub(crate) fn end(&mut self) -> Result<Count, Box<dyn Error>> {
        let line = self.hear.next().ok_or("the other process has ended")??;
        let mut numbers = line.split(' ').map(str::parse);
        let mut next = || numbers.next().ok_or("three numbers are the answer");
        Ok(Count { asked: next()??, allowed: next()??, without_redis: next()?? })
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.tell.take());
        let _ = self.child.wait();
    }
}

/// What the other process does until its input ends.
pub(crate) fn obey(half: &Half) -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lines() {
        let line = line?;
        let known = WORDS.iter().find(|(_, word)| *word == line);
        let (work, _) = known.ok_or_else(|| format!("`{line}` is not known here"))?;
        let Count { asked, allowed, without_redis } = half.work(*work)?;
        println!("{asked} {allowed} {without_redis}");
    }
    Ok(())
}
