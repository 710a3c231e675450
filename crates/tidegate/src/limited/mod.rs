//! What the code of `#[limited]` calls: one [`FunctionLimit`] for each limit of a function,
//! which finds its gate once and decides about each call.
//!
//! Not for people: everything here is hidden, and changes with the attribute. What a limit is
//! and how it decides is not here, but in the gate.

mod check;
mod convert;
mod key;
mod observe;
mod path;

pub use crate::rules::Missing;
pub use check::{CallCheck, CallChecks};
pub use convert::{Cost, ErrorFromRefusal, FromRefusal, otherwise, retry_in};
pub use key::{AlwaysKnown, AsClient, CallKey, Given, KeyPart, UserId};
pub use observe::{AlreadyObserved, observe_calls};
pub use path::{deferred_function, deferred_method};

use crate::gate::{Gate, GateError, Handle};
use crate::limiter::Limiter;
use crate::refusal::Refusal;
use crate::rules::key::KeyBytes;
use crate::rules::key::value::write_text;
use crate::rules::{KeyExpr, Outcome};
use crate::sampler::Sampler;
use crate::{Decision, Limit};
use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::Duration;

/// One limit of one function, as a static beside it.
pub struct FunctionLimit {
    definition: Definition,
    resolved: OnceLock<Resolved>,
    /// On the process's limiter, which never becomes another one.
    gate: OnceLock<Gate>,
    /// The same, where every call has the same key.
    handle: OnceLock<Handle>,
    /// Of the log lines about its refusals.
    sampler: Sampler,
}

/// What the attribute says.
pub struct Definition {
    /// The gate's name; the function's path without one.
    pub name: Option<&'static str>,
    /// Which of the limits of the function that share its name it is, from 1.
    pub nth: usize,
    /// The callers in the key, as a rule names them: `user + ip`. Empty if there is none.
    pub callers: &'static str,
    /// What happens to callers that are not known.
    pub missing: Missing,
    /// Stands before the key. Default: the function's path, if the gate is named otherwise.
    pub prefix: Option<&'static str>,
    /// Checked when the function was compiled.
    pub limit: &'static str,
    /// Returns the full path of itself, an item in the function or in one that was generated beside it.
    pub path: fn() -> &'static str,
    /// File and line of the attribute, for whoever has to correct it.
    pub location: &'static str,
}

/// A [`Definition`] with its path and limit read.
struct Resolved {
    name: String,
    prefix: String,
    /// Between the prefix and the key.
    joint: &'static str,
    /// None if there is no caller in the key.
    callers: Option<KeyExpr>,
    limit: Limit,
}

impl FunctionLimit {
    /// Nothing is looked up before the first call.
    pub const fn new(definition: Definition) -> Self {
        Self {
            definition,
            resolved: OnceLock::new(),
            gate: OnceLock::new(),
            handle: OnceLock::new(),
            sampler: Sampler::new(),
        }
    }

    /// The beginning of a key, of one part or of several.
    pub fn key(&self, parts: usize) -> CallKey {
        let resolved = self.resolved();
        CallKey::new(&resolved.prefix, resolved.joint, parts)
    }

    /// Decides now about the one key of this limit, on the process's limiter.
    #[inline]
    pub fn check(&self, cost: u64) -> Result<(), Refusal> {
        let handle = self.handle();
        self.result(handle.gate(), None, handle.check_cost(cost))
    }

    /// [`check`](Self::check) for async code.
    #[inline]
    pub async fn check_async(&self, cost: u64) -> Result<(), Refusal> {
        let handle = self.handle();
        let decision = handle.gate().check_cost_async(self.fixed_key(), cost).await;
        self.result(handle.gate(), None, decision)
    }

    /// What one decision returns, once it is recorded. Default key: the fixed one.
    #[inline]
    fn result(&self, gate: &Gate, key: Option<&[u8]>, decision: Decision) -> Result<(), Refusal> {
        let is_allowed = decision.is_allowed();
        if is_allowed && !observe::is_observed() {
            return Ok(());
        }
        let key = key.unwrap_or_else(|| self.fixed_key());
        let outcome = if is_allowed { Outcome::Allowed } else { Outcome::of_denied(&decision) };
        self.record(gate, outcome, Some((key, decision)), Duration::ZERO);
        if is_allowed { Ok(()) } else { Err(Refusal::new(gate, key, decision)) }
    }

    /// The key that calls share whose callers are not known.
    fn shared_key(&self) -> KeyBytes {
        let Resolved { prefix, joint, callers, .. } = self.resolved();
        let mut key = KeyBytes::from_slice(prefix.as_bytes());
        if let Some(callers) = callers {
            write_text(&mut key, format_args!("{joint}(no {callers})"));
        }
        key
    }

    fn fixed_key(&self) -> &[u8] {
        self.resolved().prefix.as_bytes()
    }

    #[inline]
    fn handle(&self) -> &Handle {
        self.handle.get_or_init(|| self.gate().handle(self.fixed_key()))
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
        let (resolved, location) = (self.resolved(), self.definition.location);
        match limiter.gate(&resolved.name, resolved.limit.clone()) {
            Ok(gate) => gate,
            Err(GateError::Defined { name, now, limit }) => panic!(
                "#[limited] at {location}: gate `{name}` is in force as `{now}`, not as `{limit}`; \
                 write another `name`, or the same limit at both places"
            ),
            Err(error) => panic!("#[limited] at {location}: {error}"),
        }
    }

    fn resolved(&self) -> &Resolved {
        self.resolved.get_or_init(|| self.definition.resolve())
    }
}

impl Definition {
    fn resolve(&self) -> Resolved {
        let path = path::tidy((self.path)());
        let mut name = self.name.map_or_else(|| path.clone(), String::from);
        if self.nth > 1 {
            name = format!("{name}/{}", self.nth);
        }
        let (prefix, joint) = match (self.prefix, self.name) {
            (Some(prefix), _) => (prefix.to_string(), ""),
            (None, Some(_)) => (path, "/"),
            (None, None) => (String::new(), ""),
        };
        let limit = self.limit.parse();
        let limit = limit.unwrap_or_else(|error| panic!("#[limited] at {}: {error}", self.location));
        Resolved { name: path::shortened(name), prefix, joint, callers: self.callers.parse().ok(), limit }
    }
}
