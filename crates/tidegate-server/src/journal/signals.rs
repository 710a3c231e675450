//! Being asked to end: by a person (SIGINT, SIGQUIT), by the system (SIGTERM), or because the
//! terminal went away (SIGHUP).

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Heard from now on. Before, each of them ends the program at once.
pub(super) struct Signals {
    all: Vec<Signal>,
}

impl Signals {
    pub(super) fn listen() -> std::io::Result<Self> {
        let kinds =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        // Whoever started us with `nohup` does not want to hear of it.
        let heard = kinds.into_iter().filter(|kind| !is_ignored(&status, *kind));
        Ok(Self { all: heard.map(signal).collect::<std::io::Result<_>>()? })
    }

    pub(super) async fn heard(&mut self) {
        std::future::poll_fn(|context| {
            let mut all = self.all.iter_mut();
            if all.any(|signal| signal.poll_recv(context).is_ready()) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }
}

/// By the line `SigIgn` of `/proc/self/status`; where there is none, nothing is.
fn is_ignored(status: &str, kind: SignalKind) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    u32::try_from(kind.as_raw_value() - 1).is_ok_and(|bit| mask.checked_shr(bit).unwrap_or(0) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_ignored_stays_ignored() {
        let status = "Name:\ttidegate\nSigIgn:\t0000000000001001\nSigCgt:\tffffffffffffffff\n";
        assert!(is_ignored(status, SignalKind::hangup()));
        assert!(!is_ignored(status, SignalKind::terminate()) && !is_ignored("", SignalKind::hangup()));
    }
}
