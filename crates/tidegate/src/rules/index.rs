//! Finds the rules that may apply to a request, without trying them in turn.
//!
//! Several rules can apply to a request, so a router that returns the best match is not enough: this
//! is a tree of path segments in which every branch that matches is visited. Rules with the same
//! pattern share a node; rules without a pattern are indexed by their method alone.
//!
//! A candidate is not yet a rule that applies: each rule checks the request afterwards (preflights,
//! lists, `only` and `except`). The invariant is that every rule that applies is a candidate.
//!
//! Operators write patterns and clients write paths, so a walk has no recursion, visits no node
//! twice, ends where the longest pattern ends, and looks segments up in maps with a random key.

use crate::rules::route::{Route, Segment};
use crate::rules::text::{PartText, decoded};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Rules by their number in the rule set: ascending, each once.
pub(crate) type Candidates = SmallVec<[u32; 8]>;

/// The rules of a set, by method and pattern.
#[derive(Debug, Default)]
pub(crate) struct RouteIndex {
    /// Rules for any path.
    anywhere: RulesByMethod,
    /// The first is the root, if there is any.
    nodes: Vec<SegmentNode>,
    /// Bytes of the longest text of a segment that can be a literal: longer ones need no look-up.
    longest: usize,
}

/// What may follow after some segments.
#[derive(Debug, Default)]
struct SegmentNode {
    literals: Literals,
    /// After any segment that is not empty: `{id}`.
    one: Option<usize>,
    /// Rules whose pattern ends here.
    ends: RulesByMethod,
    /// Rules whose pattern ends here with `{*rest}`.
    rest: RulesByMethod,
}

/// The nodes after literal segments.
#[derive(Debug)]
enum Literals {
    /// Compared in turn, which is half the time of hashing where there are so few, as after most
    /// segments.
    Few(Vec<(Box<[u8]>, usize)>),
    Many(HashMap<Box<[u8]>, usize>),
}

/// Rules that differ by their method only.
#[derive(Debug, Default)]
struct RulesByMethod {
    any: Vec<u32>,
    named: BTreeMap<Box<str>, Vec<u32>>,
}

/// A node to visit, with what is left of the path behind the slash, if there is one.
type Branch<'a> = (usize, Option<&'a [u8]>);

/// Bytes of a path for one byte of a literal: `%41` is `A`.
const ENCODED: usize = 3;

/// Literals of a node that are compared in turn.
const FEW: usize = 8;

impl RouteIndex {
    /// Files a rule under each of its routes.
    pub(crate) fn insert(&mut self, rule: u32, routes: &[Route]) {
        if routes.is_empty() {
            self.anywhere.insert(None, rule);
        }
        for route in routes {
            let method = route.method.as_deref();
            match &route.pattern {
                None => self.anywhere.insert(method, rule),
                Some(pattern) => self.rules_of(&pattern.segments).insert(method, rule),
            }
        }
    }

    /// The rules of this pattern, with the nodes on the way to them.
    fn rules_of(&mut self, segments: &[Segment]) -> &mut RulesByMethod {
        if self.nodes.is_empty() {
            self.nodes.push(SegmentNode::default());
        }
        let mut node = 0;
        for segment in segments {
            // Taken if there is no node yet.
            let new = self.nodes.len();
            let SegmentNode { literals, one, .. } = &mut self.nodes[node];
            node = match segment {
                Segment::Rest => return &mut self.nodes[node].rest,
                Segment::One => *one.get_or_insert(new),
                Segment::Literal(literal) => match literals.get(literal) {
                    Some(child) => child,
                    None => {
                        self.longest = self.longest.max(literal.len() * ENCODED);
                        literals.insert(literal.clone(), new);
                        new
                    }
                },
            };
            if node == new {
                self.nodes.push(SegmentNode::default());
            }
        }
        &mut self.nodes[node].ends
    }

    /// Adds the rules that a request of this method may meet, by any reading of its path.
    pub(crate) fn candidates<'a>(
        &self,
        method: &str,
        readings: impl IntoIterator<Item = &'a str>,
        found: &mut Candidates,
    ) {
        self.anywhere.collect(method, found);
        if !self.nodes.is_empty() {
            for path in readings {
                self.walk(method, path, found);
            }
        }
        sort(found);
    }

    /// Adds the rules of the patterns that fit one reading of a path; how many nodes it took.
    fn walk(&self, method: &str, path: &str, found: &mut Candidates) -> usize {
        let mut visits = 0;
        let Some(path) = path.as_bytes().strip_prefix(b"/") else { return visits };
        let mut next: Option<Branch<'_>> = Some((0, Some(path)));
        // Branches that fit as well.
        let mut others: SmallVec<[Branch<'_>; 8]> = SmallVec::new();
        while let Some((node, rest)) = next.take().or_else(|| others.pop()) {
            visits += 1;
            let node = &self.nodes[node];
            // A slash at the end does not count.
            if rest.is_none_or(<[u8]>::is_empty) {
                node.ends.collect(method, found);
            }
            let Some(rest) = rest else { continue };
            if !rest.is_empty() {
                node.rest.collect(method, found);
            }
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let (segment, after) = (&rest[..end], rest.get(end + 1..));
            let one = node.one.filter(|_| !segment.is_empty());
            let [plain, encoded] = node.after(segment, self.longest);
            for child in [one, encoded, plain].into_iter().flatten() {
                if let Some(other) = next.replace((child, after)) {
                    others.push(other);
                }
            }
        }
        visits
    }
}

impl SegmentNode {
    /// The nodes after a literal that is this segment, as it came and decoded.
    #[inline]
    fn after(&self, segment: &[u8], longest: usize) -> [Option<usize>; 2] {
        if segment.len() > longest {
            return [None; 2];
        }
        let plain = self.literals.get(segment);
        if !segment.contains(&b'%') {
            return [plain, None];
        }
        // The same node, if nothing in it is an escape.
        let encoded = self.literals.get(&decoded(segment, PartText::Path));
        [plain, encoded.filter(|child| plain != Some(*child))]
    }
}

impl Default for Literals {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Literals {
    #[inline]
    fn get(&self, segment: &[u8]) -> Option<usize> {
        match self {
            Self::Few(few) => few.iter().find(|(literal, _)| **literal == *segment).map(|(_, child)| *child),
            Self::Many(many) => many.get(segment).copied(),
        }
    }

    fn insert(&mut self, literal: Box<[u8]>, child: usize) {
        match self {
            Self::Few(few) if few.len() < FEW => few.push((literal, child)),
            Self::Few(few) => {
                let many = std::mem::take(few).into_iter().chain([(literal, child)]);
                *self = Self::Many(many.collect());
            }
            Self::Many(many) => {
                many.insert(literal, child);
            }
        }
    }
}

impl RulesByMethod {
    fn insert(&mut self, method: Option<&str>, rule: u32) {
        let rules = match method {
            None => &mut self.any,
            Some(method) => self.named.entry(method.into()).or_default(),
        };
        rules.push(rule);
    }

    /// Adds those for any method, those for this one, and for `HEAD` those for `GET`.
    #[inline]
    fn collect(&self, method: &str, found: &mut Candidates) {
        // One by one: most are none or one, and a call to copy them takes longer than all else.
        self.any.iter().for_each(|rule| found.push(*rule));
        if self.named.is_empty() {
            return;
        }
        let get = (method == "HEAD").then_some("GET");
        for method in std::iter::once(method).chain(get) {
            self.named.get(method).into_iter().flatten().for_each(|rule| found.push(*rule));
        }
    }
}

/// Several routes of a rule may fit, and several readings of a path.
fn sort(found: &mut Candidates) {
    if found.len() > 1 {
        found.sort_unstable();
        found.dedup();
    }
}

type RulesByValue = HashMap<Box<[u8]>, Vec<u32>>;

/// Rules that apply to requests with certain entries (`plan=pro`), each by its first one.
#[derive(Debug, Default)]
pub(crate) struct ExactIndex {
    /// Rules by the value of each entry that is the first of any rule.
    names: HashMap<Box<str>, RulesByValue>,
}

impl ExactIndex {
    /// Files a rule under the entry that all its requests have.
    pub(crate) fn insert(&mut self, rule: u32, name: &str, value: &[u8]) {
        let values = self.names.entry(name.into()).or_default();
        values.entry(value.into()).or_default().push(rule);
    }

    /// Adds the rules that a request may meet. `find` is called once for each name of an entry.
    pub(crate) fn candidates<'a>(
        &self,
        find: &dyn Fn(&str) -> Option<Cow<'a, [u8]>>,
        found: &mut Candidates,
    ) {
        for (name, values) in &self.names {
            if let Some(rules) = find(name).and_then(|value| values.get(&*value)) {
                found.extend_from_slice(rules);
            }
        }
        sort(found);
    }
}

#[cfg(test)]
mod tests;
