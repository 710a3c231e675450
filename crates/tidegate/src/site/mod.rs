//! What the code of `#[limited]` calls: one [`Site`] for each limit of a function, which
//! finds its gate once and asks it.
//!
//! Not for people: everything here is hidden, and changes with the attribute.

mod key;
mod path;
mod refused;
mod told;

pub use key::{AsClient, KeyPart, KeyText, Known, Missing, Shown, UserId};
pub use path::{deferred_function, deferred_method};
pub use refused::{Cost, OfRefusal, Refused, otherwise, when_again};
pub use told::{AlreadyObserved, CallObserver, observe_calls};

use crate::gate::{Gate, GateError, Handle};
use crate::limiter::{Check, Limiter};
use crate::permit::Permit;
use crate::refusal::Refusal;
use crate::sampler::Sampler;
use crate::verdict::Verdict;
use crate::{Decision, Limit};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::Duration;

/// One limit of one function, as a static beside it.
pub struct Site {
    text: Text,
    resolved: OnceLock<Resolved>,
    /// On the process's limiter, which never becomes another one.
    gate: OnceLock<Gate>,
    /// The same, where every call has the same key.
    handle: OnceLock<Handle>,
    /// Of the lines about its refusals.
    sampler: Sampler,
}

/// What the attribute says.
pub struct Text {
    /// The gate's name; the function's path without one.
    pub name: Option<&'static str>,
    /// The place of the limit among those of the function that share its name, from 1.
    pub nth: usize,
    /// Put before the key; the function's path, if the gate is named otherwise.
    pub prefix: Option<&'static str>,
    /// Checked when the function was compiled.
    pub limit: &'static str,
    /// Returns the full path of itself, an item in the function.
    pub path: fn() -> &'static str,
    /// The function's name, where that item is in a function beside it.
    pub beside: Option<&'static str>,
    /// Where the attribute stands, for whoever has to correct it.
    pub place: &'static str,
}

/// [`Text`], read.
struct Resolved {
    name: String,
    prefix: String,
    /// Between the prefix and the key.
    joint: &'static str,
    limit: Limit,
}

impl Site {
    /// Nothing is looked up before the first call.
    pub const fn new(text: Text) -> Self {
        Self {
            text,
            resolved: OnceLock::new(),
            gate: OnceLock::new(),
            handle: OnceLock::new(),
            sampler: Sampler::new(),
        }
    }

    /// The beginning of a key, of one part or of several.
    pub fn key(&self, parts: usize) -> KeyText {
        let resolved = self.resolved();
        KeyText::new(&resolved.prefix, resolved.joint, parts)
    }

    /// Decides now about the one key of this site, on the process's limiter.
    #[inline]
    pub fn check_fixed(&self, cost: u64) -> Result<(), Refusal> {
        let handle = self.handle();
        self.told(handle.gate(), || self.fixed(), handle.check_cost(cost))
    }

    /// [`check_fixed`](Self::check_fixed) for async code.
    #[inline]
    pub async fn check_fixed_async(&self, cost: u64) -> Result<(), Refusal> {
        let handle = self.handle();
        let decision = handle.check_cost_async(cost).await;
        self.told(handle.gate(), || self.fixed(), decision)
    }

    /// Decides now about any key, on the process's limiter unless another is given.
    #[inline]
    pub fn check(&self, limiter: Option<&Limiter>, key: &KeyText, cost: u64) -> Result<(), Refusal> {
        let gate = self.gate_in(limiter);
        self.identified(key, &gate)?;
        self.told(&gate, || key.as_bytes(), gate.check_cost(key.as_bytes(), cost))
    }

    /// [`check`](Self::check) for async code.
    #[inline]
    pub async fn check_async(
        &self,
        limiter: Option<&Limiter>,
        key: &KeyText,
        cost: u64,
    ) -> Result<(), Refusal> {
        let gate = self.gate_in(limiter);
        self.identified(key, &gate)?;
        let decision = gate.check_cost_async(key.as_bytes(), cost).await;
        self.told(&gate, || key.as_bytes(), decision)
    }

    #[inline]
    fn told<'k>(
        &self,
        gate: &Gate,
        key: impl FnOnce() -> &'k [u8],
        decision: Decision,
    ) -> Result<(), Refusal> {
        if !decision.is_allowed() {
            return Err(told::refused(self, gate, Refusal::new(gate, key(), decision)));
        }
        if told::is_watched() {
            told::allowed(gate, key(), &decision, Duration::ZERO);
        }
        Ok(())
    }

    #[inline]
    fn identified(&self, key: &KeyText, gate: &Gate) -> Result<(), Refusal> {
        key.identified(gate).map_err(|refusal| told::refused(self, gate, refusal))
    }

    fn fixed(&self) -> &[u8] {
        self.resolved().prefix.as_bytes()
    }

    #[inline]
    fn handle(&self) -> &Handle {
        self.handle.get_or_init(|| self.gate().handle(self.fixed()))
    }

    #[inline]
    fn gate(&self) -> &Gate {
        self.gate.get_or_init(|| self.gate_of(Limiter::global()))
    }

    #[inline]
    fn gate_in(&self, limiter: Option<&Limiter>) -> Cow<'_, Gate> {
        match limiter {
            None => Cow::Borrowed(self.gate()),
            Some(limiter) => Cow::Owned(self.gate_of(limiter)),
        }
    }

    /// # Panics
    /// If the gate cannot be put in force. Going on would mean to let everybody through,
    /// or nobody, because of two lines that contradict each other.
    fn gate_of(&self, limiter: &Limiter) -> Gate {
        let resolved = self.resolved();
        match limiter.gate(&resolved.name, resolved.limit.clone()) {
            Ok(gate) => gate,
            Err(error) => self.fail(&error),
        }
    }

    #[cold]
    fn fail(&self, error: &GateError) -> ! {
        let place = self.text.place;
        match error {
            GateError::Defined { name, now, limit } => panic!(
                "#[limited] at {place}: gate `{name}` is in force as `{now}`, not as `{limit}`; \
                 write another `name`, or the same limit at both places"
            ),
            error => panic!("#[limited] at {place}: {error}"),
        }
    }

    fn resolved(&self) -> &Resolved {
        self.resolved.get_or_init(|| self.text.resolve())
    }
}

impl Text {
    fn resolve(&self) -> Resolved {
        let inner = (self.path)();
        let path = match self.beside {
            Some(function) => path::tidy(&path::beside(inner, function)),
            None => path::tidy(inner),
        };
        let mut name = match self.name {
            Some(name) => name.to_string(),
            None => path.clone(),
        };
        if self.nth > 1 {
            name = format!("{name}/{}", self.nth);
        }
        let (prefix, joint) = match (self.prefix, self.name) {
            (Some(prefix), _) => (prefix.to_string(), ""),
            (None, Some(_)) => (path, "/"),
            (None, None) => (String::new(), ""),
        };
        match self.limit.parse() {
            Ok(limit) => Resolved { name: path::shortened(name), prefix, joint, limit },
            Err(error) => panic!("#[limited] at {}: {error}", self.place),
        }
    }
}

/// One of several limits of a call.
pub struct Ask<'a> {
    /// Its limit.
    pub site: &'a Site,
    /// Whose allowance.
    pub key: &'a KeyText,
    /// Units.
    pub cost: u64,
}

type Checks<'a> = SmallVec<[Check<'a>; 2]>;

/// Several limits, or one that waits or holds a place: all or none.
pub struct Asks<'a> {
    limiter: &'a Limiter,
    asks: &'a [Ask<'a>],
    gates: SmallVec<[Gate; 2]>,
}

impl<'a> Asks<'a> {
    /// On the process's limiter unless another is given.
    pub fn new(limiter: Option<&'a Limiter>, asks: &'a [Ask<'a>]) -> Self {
        let gates = asks.iter().map(|ask| ask.site.gate_in(limiter).into_owned()).collect();
        Self { limiter: limiter.unwrap_or_else(|| Limiter::global()), asks, gates }
    }

    /// Decides now.
    pub fn check(self) -> Result<Permit, Refusal> {
        self.identified()?;
        self.told(self.limiter.check(&self.checks()))
    }

    /// [`check`](Self::check) for async code.
    pub async fn check_async(self) -> Result<Permit, Refusal> {
        self.identified()?;
        let verdict = self.limiter.check_async(&self.checks());
        self.told(verdict.await)
    }

    /// Takes places and units now or not at all, whatever wait is in force by now.
    pub fn take(self) -> Result<Permit, Refusal> {
        self.identified()?;
        self.told(self.limiter.hold(&self.checks()))
    }

    /// [`take`](Self::take) for async code.
    pub async fn take_async(self) -> Result<Permit, Refusal> {
        self.identified()?;
        let verdict = self.limiter.hold_async(&self.checks());
        self.told(verdict.await)
    }

    /// Waits on this thread.
    pub fn block(self) -> Result<Permit, Refusal> {
        self.identified()?;
        self.told(self.limiter.acquire(&self.checks()).blocking())
    }

    /// Waits, under any executor.
    pub async fn acquire(self) -> Result<Permit, Refusal> {
        self.identified()?;
        let acquire = self.limiter.acquire(&self.checks());
        self.told(acquire.await)
    }

    fn identified(&self) -> Result<(), Refusal> {
        self.asks.iter().zip(&self.gates).try_for_each(|(ask, gate)| ask.site.identified(ask.key, gate))
    }

    /// The permit, or the refusal as its limit tells it.
    fn told(&self, verdict: Verdict) -> Result<Permit, Refusal> {
        if verdict.is_allowed() && told::is_watched() {
            let wait = verdict.waited();
            for ((ask, gate), decision) in self.asks.iter().zip(&self.gates).zip(verdict.decisions()) {
                told::allowed(gate, ask.key.as_bytes(), decision, wait);
            }
        }
        verdict.into_permit().map_err(|refusal| {
            let binds = |(_, gate): &(_, &Gate)| gate.name() == refusal.gate();
            match self.asks.iter().zip(&self.gates).find(binds) {
                Some((ask, gate)) => told::refused(ask.site, gate, refusal),
                None => refusal,
            }
        })
    }

    fn checks(&self) -> Checks<'_> {
        let check = |(ask, gate): (&'a Ask<'a>, _)| Check::new(gate, ask.key.as_bytes()).cost(ask.cost);
        self.asks.iter().zip(&self.gates).map(check).collect()
    }
}
