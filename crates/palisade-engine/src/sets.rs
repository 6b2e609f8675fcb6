//! Policy sets: the applicable rules of one direction, shared by every point that has the same.
//!
//! A set is what its key says: the policies and profiles in order, and how the endpoint's own end
//! resolves what they ask of it. Each set knows its rules as one sequence, and has a class for every
//! identity; identities that match the same rules share the compiled program.

use crate::activity::is_builtin;
use crate::bodies::{Active, Body, PeerTest, Source};
use crate::classes::{Credits, Programs};
use crate::faults::{Fault, on};
use crate::identities::IdentityKey;
use crate::program::{Sequence, Step, compile};
use crate::traffic::End;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{
    Action, Direction, Family, PolicyId, Prefix, Protocol, RuleOrigin, State, Str, TierDefault,
    Traffic,
};
use palisade_tables::{ClassId, Credit, RuleId, SetId, Verdict};

/// What makes a policy set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SetKey {
    pub(crate) direction: Direction,
    pub(crate) policies: Vec<PolicyId>,
    pub(crate) profiles: Vec<Str>,
    /// For each rule that tests the own address, whether the test holds.
    pub(crate) own: Vec<bool>,
    /// The numbers behind the own named ports that a rule asks for.
    pub(crate) ports: Vec<(Str, Protocol, u16)>,
    /// The family, where a rule asks for it.
    pub(crate) family: Option<Family>,
}

/// A rule in a set.
#[derive(Debug)]
struct SetRule {
    bodies: Arc<[Body]>,
    index: usize,
}

impl SetRule {
    fn body(&self) -> &Body {
        &self.bodies[self.index]
    }
}

/// What decides the class of an identity in a set: the places of the rules whose peers it matches,
/// and its ports where a rule asks for them.
type Seen = (Vec<usize>, Vec<(Str, Protocol, u16)>);

#[derive(Debug)]
struct Set {
    key: Arc<SetKey>,
    points: usize,
    sequence: Sequence<SetRule>,
    credits: Vec<RuleId>,
    /// Whether a rule asks for a named port at the other end.
    asks_ports: bool,
    /// Selectors that some peer requires, with the places of their rules.
    selectors: BTreeMap<u32, Vec<usize>>,
    /// The places of rules with a peer that requires no selector.
    loose: Vec<usize>,
    /// Whether only the selectors above tell identities apart.
    by_selector_only: bool,
    compiled: BTreeMap<Seen, ClassId>,
}

/// All policy sets.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    numbers: BTreeMap<Arc<SetKey>, SetId>,
    sets: BTreeMap<SetId, Set>,
    by_source: BTreeMap<Source, BTreeSet<SetId>>,
    by_selector: BTreeMap<u32, BTreeSet<SetId>>,
    /// Sets that may tell any identity apart.
    loose: BTreeSet<SetId>,
    next: u32,
    /// Sets whose sequence is to be built (again).
    stale: BTreeSet<SetId>,
    idle: BTreeSet<SetId>,
}

/// What a settling changed.
#[derive(Debug, Default)]
pub(crate) struct SetChanges {
    /// Sets whose classes are all to be looked at again.
    pub(crate) stale: BTreeSet<SetId>,
    /// Sets that ended.
    pub(crate) ended: BTreeSet<SetId>,
}

impl Sets {
    /// A number that stands for no set yet.
    pub(crate) fn fresh(&mut self) -> SetId {
        let set = SetId(self.next);
        self.next = self.next.wrapping_add(1);
        set
    }

    /// The number of a set, with one point more.
    pub(crate) fn take(&mut self, key: &Arc<SetKey>) -> SetId {
        if let Some(number) = self.numbers.get(key) {
            let number = *number;
            if let Some(set) = self.sets.get_mut(&number) {
                set.points += 1;
            }
            return number;
        }
        let number = self.fresh();
        self.numbers.insert(key.clone(), number);
        for source in sources(key) {
            self.by_source.entry(source).or_default().insert(number);
        }
        let set = Set {
            key: key.clone(),
            points: 1,
            sequence: Sequence {
                direction: key.direction,
                steps: Vec::new(),
            },
            credits: Vec::new(),
            asks_ports: false,
            selectors: BTreeMap::new(),
            loose: Vec::new(),
            by_selector_only: true,
            compiled: BTreeMap::new(),
        };
        self.sets.insert(number, set);
        self.stale.insert(number);
        number
    }

    /// One point less.
    pub(crate) fn give(&mut self, number: SetId) {
        if let Some(set) = self.sets.get_mut(&number) {
            set.points -= 1;
            if set.points == 0 {
                self.idle.insert(number);
            }
        }
    }

    /// The rules of a source changed.
    pub(crate) fn edited(&mut self, source: &Source) {
        self.stale
            .extend(self.by_source.get(source).into_iter().flatten());
    }

    /// Something that all sets may depend on changed.
    pub(crate) fn all_edited(&mut self) {
        self.stale.extend(self.sets.keys());
    }

    /// The sets in which an identity may have another class than nobody has.
    pub(crate) fn telling(&self, who: &IdentityKey) -> BTreeSet<SetId> {
        let selectors = who.selectors.iter();
        let under = selectors.filter_map(|selector| self.by_selector.get(selector));
        under.flatten().chain(&self.loose).copied().collect()
    }

    /// The selectors by which alone a set tells identities apart; `None` where it looks at more.
    pub(crate) fn selectors(&self, number: SetId) -> Option<impl Iterator<Item = u32>> {
        let set = self.sets.get(&number).filter(|set| set.by_selector_only)?;
        Some(set.selectors.keys().copied())
    }

    fn unfile(&mut self, number: SetId) {
        self.loose.remove(&number);
        let Some(set) = self.sets.get_mut(&number) else {
            return;
        };
        for selector in core::mem::take(&mut set.selectors).into_keys() {
            if let Some(users) = self.by_selector.get_mut(&selector) {
                users.remove(&number);
                if users.is_empty() {
                    self.by_selector.remove(&selector);
                }
            }
        }
    }

    fn file(&mut self, number: SetId) {
        let Some(set) = self.sets.get_mut(&number) else {
            return;
        };
        set.index();
        for selector in set.selectors.keys() {
            self.by_selector
                .entry(*selector)
                .or_default()
                .insert(number);
        }
        if !set.by_selector_only {
            self.loose.insert(number);
        }
    }

    /// Forgets sets without points and builds the sequences of those that changed.
    pub(crate) fn settle(
        &mut self,
        state: &State,
        active: &Active,
        credits: &mut Credits,
    ) -> SetChanges {
        let mut changes = SetChanges::default();
        for number in core::mem::take(&mut self.idle) {
            if self.sets.get(&number).is_none_or(|set| set.points > 0) {
                continue;
            }
            self.unfile(number);
            let Some(gone) = self.sets.remove(&number) else {
                continue;
            };
            self.numbers.remove(&gone.key);
            for source in sources(&gone.key) {
                if let Some(users) = self.by_source.get_mut(&source) {
                    users.remove(&number);
                    if users.is_empty() {
                        self.by_source.remove(&source);
                    }
                }
            }
            gone.credits.into_iter().for_each(|rule| credits.give(rule));
            changes.ended.insert(number);
        }
        for number in core::mem::take(&mut self.stale) {
            self.unfile(number);
            let Some(set) = self.sets.get_mut(&number) else {
                continue;
            };
            let built = Builder::new(state, active, credits, &set.key).build();
            set.sequence = built.sequence;
            set.asks_ports = built.asks_ports;
            set.compiled.clear();
            let old = core::mem::replace(&mut set.credits, built.credits);
            old.into_iter().for_each(|rule| credits.give(rule));
            self.file(number);
            changes.stale.insert(number);
        }
        changes
    }

    /// The class of an identity in a set.
    pub(crate) fn class(
        &mut self,
        number: SetId,
        who: &IdentityKey,
        programs: &mut Programs,
    ) -> Option<ClassId> {
        let set = self.sets.get_mut(&number)?;
        let seen = set.seen(who);
        if let Some(class) = set.compiled.get(&seen)
            && programs.lives(*class)
        {
            return Some(*class);
        }
        let program = set.compile(&seen);
        let class = programs.number(program);
        set.compiled.insert(seen, class);
        Some(class)
    }
}

fn sources(key: &SetKey) -> impl Iterator<Item = Source> {
    let policies = key.policies.iter().cloned().map(Source::Policy);
    let profiles = key.profiles.iter().cloned().map(Source::Profile);
    policies.chain(profiles)
}

fn matches(peer: &PeerTest, who: &IdentityKey) -> bool {
    let within = |nets: &[Prefix]| {
        who.net
            .is_some_and(|at| nets.iter().any(|net| net.covers(at)))
    };
    let selected = |number: u32| who.selectors.binary_search(&number).is_ok();
    peer.selector.is_none_or(selected)
        && (on(Fault::NotSelectorIgnored) || !peer.not_selector.is_some_and(selected))
        && peer.nets.as_ref().is_none_or(|nets| within(nets))
        && (on(Fault::NotNetsIgnored) || !within(&peer.not_nets))
}

impl Set {
    /// Notes where each selector is asked for.
    fn index(&mut self) {
        self.selectors.clear();
        self.loose.clear();
        self.by_selector_only = !self.asks_ports;
        for (at, step) in self.sequence.steps.iter().enumerate() {
            let Step::Rule { rule, .. } = step else {
                continue;
            };
            for peer in &rule.body().peers {
                let Some(selector) = peer.selector else {
                    self.loose.push(at);
                    self.by_selector_only &= peer.is_any();
                    continue;
                };
                self.selectors.entry(selector).or_default().push(at);
            }
        }
        self.loose.dedup();
    }

    fn seen(&self, who: &IdentityKey) -> Seen {
        let asked = who.selectors.iter().filter_map(|s| self.selectors.get(s));
        let mut matched: Vec<usize> = asked.flatten().chain(&self.loose).copied().collect();
        matched.sort_unstable();
        matched.dedup();
        matched.retain(|at| match &self.sequence.steps[*at] {
            Step::Rule { rule, .. } => rule.body().peers.iter().any(|peer| matches(peer, who)),
            Step::Stop { .. } => false,
        });
        let ports = match self.asks_ports {
            true => who.ports.clone(),
            false => Vec::new(),
        };
        (matched, ports)
    }

    fn compile(&self, seen: &Seen) -> palisade_tables::Program {
        let key = &self.key;
        let own_end = match key.direction {
            Direction::Ingress => End::Destination,
            Direction::Egress => End::Source,
        };
        let named = |end: End, name: &Str, protocol: Protocol| {
            let ports = if end == own_end { &key.ports } else { &seen.1 };
            let any = on(Fault::NamedPortAnyProtocol);
            ports
                .iter()
                .find(|(n, p, _)| n == name && (any || *p == protocol))
                .map(|(_, _, port)| *port)
        };
        let fits = |term: &&Traffic| {
            term.family.is_none() || term.family == key.family || on(Fault::FamiliesMixed)
        };
        compile(
            &self.sequence,
            |at, rule: &SetRule| match seen.0.binary_search(&at).is_ok() {
                true => rule.body().traffic.iter().filter(fits).collect(),
                false => Vec::new(),
            },
            named,
        )
    }
}

struct Built {
    sequence: Sequence<SetRule>,
    credits: Vec<RuleId>,
    asks_ports: bool,
}

/// Builds the sequence of a set.
struct Builder<'a> {
    state: &'a State,
    active: &'a Active,
    credits: &'a mut Credits,
    key: &'a SetKey,
    own: core::slice::Iter<'a, bool>,
    built: Built,
}

impl<'a> Builder<'a> {
    fn new(
        state: &'a State,
        active: &'a Active,
        credits: &'a mut Credits,
        key: &'a SetKey,
    ) -> Self {
        Builder {
            state,
            active,
            credits,
            key,
            own: key.own.iter(),
            built: Built {
                sequence: Sequence {
                    direction: key.direction,
                    steps: Vec::new(),
                },
                credits: Vec::new(),
                asks_ports: false,
            },
        }
    }

    fn build(mut self) -> Built {
        let key = self.key;
        let policies: Vec<&palisade_model::Policy> = key
            .policies
            .iter()
            .filter_map(|id| self.state.policies.get(id))
            .collect();
        for tier in policies.chunk_by(|a, b| a.tier == b.tier) {
            self.tier(&tier[0].tier, tier);
        }
        for name in &key.profiles {
            self.profile(name);
        }
        let direction = key.direction;
        self.stop(Credit::NoProfileMatch { direction }, Verdict::Deny);
        self.built
    }

    fn tier(&mut self, name: &Str, policies: &[&palisade_model::Policy]) {
        let direction = self.key.direction;
        let begin = self.built.sequence.steps.len();
        let mut isolating = Vec::new();
        for policy in policies {
            if policy.rules(direction).is_some_and(|r| r.default_deny) {
                isolating.push(policy.id.clone());
            }
            self.rules(&Source::Policy(policy.id.clone()), |action| action);
        }
        let default = match self.state.tier(name).map(|tier| tier.default) {
            Some(TierDefault::Pass) if !on(Fault::TierDefaultPassLost) => TierDefault::Pass,
            _ => TierDefault::Deny,
        };
        let denies = default == TierDefault::Deny && !isolating.is_empty();
        if denies && !on(Fault::DefaultDenyIgnored) {
            let credit = Credit::TierDefault {
                tier: name.clone(),
                direction,
                policies: isolating,
            };
            self.stop(credit, Verdict::Deny);
        }
        let end = self.built.sequence.steps.len();
        for step in &mut self.built.sequence.steps[begin..] {
            if let Step::Rule { next, .. } = step {
                *next = end;
            }
        }
    }

    fn profile(&mut self, name: &Str) {
        let direction = self.key.direction;
        if is_builtin(name) || on(Fault::ProfileAllowAlways) {
            let credit = Credit::ProfileRule {
                profile: name.clone(),
                direction,
                origin: RuleOrigin {
                    index: 0,
                    name: None,
                    fingerprint: 0,
                    line: None,
                },
            };
            return self.stop(credit, Verdict::Allow);
        }
        let source = Source::Profile(name.clone());
        if self.active.get(&source).is_some() {
            self.rules(&source, |action| match action {
                Action::Pass if on(Fault::PassInProfileAllows) => Action::Allow,
                Action::Pass => Action::Deny,
                other => other,
            });
            return;
        }
        let credit = Credit::MissingProfile {
            profile: name.clone(),
            direction,
        };
        let verdict = match on(Fault::MissingProfileAllows) {
            true => Verdict::Allow,
            false => Verdict::Deny,
        };
        self.stop(credit, verdict);
    }

    /// The rules of a source, without those whose test of the own address fails.
    fn rules(&mut self, source: &Source, action: impl Fn(Action) -> Action) {
        let direction = self.key.direction;
        let Some(bodies) = self.active.get(source).and_then(|s| s.of(direction)) else {
            return;
        };
        for (index, body) in bodies.iter().enumerate() {
            if body.own.is_some() && !self.own.next().copied().unwrap_or(false) {
                continue;
            }
            let id = self.credits.take(&body.credit);
            self.built.credits.push(id);
            self.built.asks_ports |= body.asks_ports;
            self.built.sequence.steps.push(Step::Rule {
                id,
                action: action(body.action),
                next: 0,
                rule: SetRule {
                    bodies: bodies.clone(),
                    index,
                },
            });
        }
    }

    fn stop(&mut self, credit: Credit, verdict: Verdict) {
        let id = self.credits.take(&Arc::new(credit));
        self.built.credits.push(id);
        self.built.sequence.steps.push(Step::Stop { id, verdict });
    }
}
