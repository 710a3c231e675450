//! What the figures were taken on, and who else was using it. No host name and no paths: the text
//! is committed.

use crate::procfs::{self, numbers};
use std::fs::read_to_string;

pub fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory_kib = meminfo_total_kib().unwrap_or(0);
    format!(
        "{}, {cores} cores, {:.1} GiB memory, Linux {}, huge pages {}, {}",
        cpu_model().unwrap_or_else(|| "unknown CPU".into()),
        memory_kib as f64 / (1024.0 * 1024.0),
        kernel(),
        huge_pages().unwrap_or_else(|| "unknown".into()),
        env!("BENCH_RUSTC"),
    )
}

/// Counts what others take of the processors while a suite runs: next to a busy neighbour the
/// figures, above all those of two threads, say more about the neighbour.
pub struct Watch {
    begun: Option<Ticks>,
}

struct Ticks {
    all: u64,
    busy: u64,
    own: u64,
}

impl Watch {
    pub fn start() -> Self {
        Self { begun: Ticks::now() }
    }

    /// Others' share of all processor time since the start.
    pub fn others(&self) -> Option<f64> {
        let (begun, now) = (self.begun.as_ref()?, Ticks::now()?);
        let busy = (now.busy - begun.busy).saturating_sub(now.own - begun.own);
        Some(busy as f64 / (now.all - begun.all).max(1) as f64)
    }
}

impl Ticks {
    fn now() -> Option<Self> {
        // The first line: cpu user nice system idle iowait irq softirq steal ...
        let fields = numbers(first_line("/proc/stat")?.strip_prefix("cpu")?);
        let all = fields.iter().take(8).sum();
        let idle: u64 = fields.iter().skip(3).take(2).sum();
        let own = procfs::times("self")?;
        Some(Self { all, busy: all - idle, own: own.itself + own.ended_children })
    }
}

fn cpu_model() -> Option<String> {
    let text = read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn meminfo_total_kib() -> Option<u64> {
    let text = read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The kernel's version, without what whoever built it appended.
fn kernel() -> String {
    let release = first_line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into());
    release.split('-').next().unwrap_or_default().to_owned()
}

/// `always [madvise] never`: the one in brackets holds, and it decides what a cache miss costs.
fn huge_pages() -> Option<String> {
    let text = first_line("/sys/kernel/mm/transparent_hugepage/enabled")?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn first_line(path: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_work_is_not_counted_as_others() {
        let watch = Watch::start();
        let begun = Ticks::now().expect("this system has /proc");
        // Long enough to be seen in ticks of 10 ms.
        let mut own = 0;
        while own < 20 {
            own = Ticks::now().expect("this system has /proc").own - begun.own;
        }
        let now = Ticks::now().expect("this system has /proc");
        let others = watch.others().expect("this system has /proc");
        let without_us = (now.busy - begun.busy) as f64 / (now.all - begun.all) as f64;
        assert!(others < without_us, "{others} of {without_us}");
    }
}
