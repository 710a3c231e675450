//! The decisions for a handler: those that let its request through.

use crate::decision::Decision;
use crate::rules::Record;
use http::Extensions;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// What the guard decided about the request at hand, in its extensions, if the guard has
/// [`decided_extension`](crate::http::GuardBuilder::decided_extension); with the feature `axum` also an
/// extractor. Without policies, if no rule applied or the guard is switched off.
///
/// ```
/// use tidegate::http::Decided;
///
/// fn handle(request: http::Request<()>) -> String {
///     match request.extensions().get::<Decided>() {
///         Some(decided) => format!("{:?} left", decided.remaining()),
///         None => "no guard".into(),
///     }
/// }
/// # handle(http::Request::new(()));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Decided {
    policies: SmallVec<[(Arc<str>, Decision); 1]>,
    wait: Duration,
}

impl Decided {
    pub(crate) fn of(records: &[Record<'_>], wait: Duration) -> Self {
        let in_force = records.iter().filter(|record| !record.is_shadow());
        let policy = |record: &Record<'_>| Some((record.policy().into(), *record.decision()?));
        Self { policies: in_force.filter_map(policy).collect(), wait }
    }

    /// Adds it to the request, after the decisions of outer layers.
    pub(crate) fn add_to(self, extensions: &mut Extensions) {
        match extensions.get_mut::<Self>() {
            Some(before) => {
                before.policies.extend(self.policies);
                before.wait += self.wait;
            }
            None => drop(extensions.insert(self)),
        }
    }

    /// The policies that applied, in the order of the rules, with what they decided; those
    /// of an outer layer first.
    pub fn policies(&self) -> impl Iterator<Item = (&str, &Decision)> {
        self.policies.iter().map(|(name, decision)| (&**name, decision))
    }

    /// What the policy of this name decided, if it applied.
    pub fn policy(&self, name: &str) -> Option<&Decision> {
        self.policies().find(|(own, _)| *own == name).map(|(_, decision)| decision)
    }

    /// Units that every policy would still allow now; none if no rule applied.
    pub fn remaining(&self) -> Option<u64> {
        self.policies().map(|(_, decision)| decision.remaining()).min()
    }

    /// How long the request waited for its start.
    pub fn wait(&self) -> Duration {
        self.wait
    }
}
