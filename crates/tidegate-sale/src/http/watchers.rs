//! Who may watch orders: so many in all, and a few for each user, as each holds a connection.

use crate::goods::UserId;
use crate::refusal::Refusal;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What one user may watch at the same time: some tabs on some devices.
const EACH_MAX: usize = 8;
/// Nobody knows when a tab is closed.
const COME_BACK: Duration = Duration::from_secs(5);

pub(super) struct Watchers {
    most: usize,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    all: usize,
    by_user: HashMap<UserId, usize>,
}

/// Somebody watches, until it is dropped.
pub(super) struct Watching {
    watchers: Arc<Watchers>,
    user: UserId,
}

impl Watchers {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, now: Mutex::default() })
    }

    /// One more, if there is room.
    ///
    /// # Errors
    /// If all places are taken, the service is busy. If this user has taken theirs, it is not.
    pub(super) fn join(self: &Arc<Self>, user: &UserId) -> Result<Watching, Refusal> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let own = now.by_user.get(user).copied().unwrap_or(0);
        if own >= EACH_MAX {
            return Err(Refusal::Limited { retry_after: COME_BACK, ahead: None });
        }
        if now.all >= self.most {
            return Err(Refusal::Busy);
        }
        now.all += 1;
        now.by_user.insert(user.clone(), own + 1);
        Ok(Watching { watchers: self.clone(), user: user.clone() })
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut now = self.watchers.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.all -= 1;
        match now.by_user.get_mut(&self.user) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(now.by_user.remove(&self.user)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all_places_alone_and_who_leaves_makes_room() {
        let watchers = Watchers::new(EACH_MAX + 1);
        let (ann, bob): (UserId, UserId) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let mut of_ann: Vec<_> = (0..EACH_MAX).map(|_| watchers.join(&ann).unwrap()).collect();
        assert!(matches!(watchers.join(&ann), Err(Refusal::Limited { .. })), "her own limit");
        let of_bob = watchers.join(&bob).unwrap();
        assert!(matches!(watchers.join(&bob), Err(Refusal::Busy)), "all are taken");
        of_ann.pop();
        of_ann.push(watchers.join(&ann).unwrap());
        drop((of_ann, of_bob));
        assert!(watchers.now.lock().unwrap().by_user.is_empty());
    }
}
