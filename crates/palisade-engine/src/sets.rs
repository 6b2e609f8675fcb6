//! Policy sets: the applicable rules of one direction, shared by every point that has the same.
//!
//! A set is what its key says: the policies and profiles in order, and how the endpoint's own end
//! resolves what they ask of it. It holds what each policy says once for all that say the same. An
//! edit of a policy exchanges what that one says, and concerns the identities that the rules which
//! differ ask for. Every identity has a class, compiled from the rules it meets until one decides
//! everything.

use crate::activity::is_builtin;
use crate::bodies::{Active, Bodies, Body, Side};
use crate::classes::Credits;
use crate::faults::{Fault, on};
use crate::identities::IdentityKey;
use crate::index::{Index, Lengths};
use crate::policies::{Policies, PolicyNumber};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{Direction, Family, Prefix, Protocol, RuleOrigin, State, Str, TierDefault};
use palisade_tables::{Credit, RuleId, SetId, Verdict};

/// What makes a policy set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SetKey {
    pub(crate) direction: Direction,
    pub(crate) policies: Vec<PolicyNumber>,
    pub(crate) profiles: Vec<Str>,
    /// For each rule that tests the own address, whether the test holds.
    pub(crate) own: Vec<bool>,
    /// The numbers behind the own named ports that a rule asks for.
    pub(crate) ports: Vec<(Str, Protocol, u16)>,
    /// The family, where a rule asks for it.
    pub(crate) family: Option<Family>,
}

/// Where rules come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Policy(PolicyNumber),
    Profile(Str),
}

/// What sets are built from.
#[derive(Clone, Copy)]
pub(crate) struct Rulebook<'a> {
    pub(crate) state: &'a State,
    pub(crate) policies: &'a Policies,
    pub(crate) active: &'a Active,
}

/// What one source says, and where in the set it is said.
#[derive(Debug)]
pub(super) struct Kind {
    bodies: Arc<Bodies>,
    /// The places of its sources, in order.
    pub(super) at: Vec<u32>,
}

/// One source in a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// What it says; none where it says nothing.
    kind: Option<u32>,
    /// Its first place in [`SetKey::own`].
    pub(super) own: u32,
}

/// Sources that are decided together: those of a tier, or a profile; then what stops what none of
/// them decided.
#[derive(Debug)]
pub(super) struct Block {
    /// The place after its last source.
    pub(super) end: u32,
    pub(super) stop: Option<(RuleId, Verdict)>,
    /// The place of the profile in [`SetKey::profiles`], if it is one.
    pub(super) profile: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Set {
    pub(super) key: Arc<SetKey>,
    points: usize,
    pub(super) segments: Vec<Segment>,
    pub(super) blocks: Vec<Block>,
    /// By number; none where a number is free.
    kinds: Vec<Option<Kind>>,
    pub(super) index: Index,
}

/// Which sets may tell which identities apart.
#[derive(Debug, Default)]
struct Files {
    selectors: BTreeSet<(u32, SetId)>,
    nets: BTreeSet<(Prefix, SetId)>,
    lengths: Lengths,
    loose: BTreeSet<SetId>,
}

/// All policy sets.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    numbers: BTreeMap<Arc<SetKey>, SetId>,
    sets: BTreeMap<SetId, Set>,
    by_policy: BTreeSet<(PolicyNumber, SetId)>,
    by_profile: BTreeSet<(Str, SetId)>,
    files: Files,
    next: u32,
    /// Sets that are to be built (again).
    stale: BTreeSet<SetId>,
    /// Sets of which some policies changed what they say.
    edited: BTreeSet<(SetId, PolicyNumber)>,
    idle: BTreeSet<SetId>,
}

/// What the rules that changed in a set ask for.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) selectors: BTreeSet<u32>,
    pub(crate) nets: BTreeSet<Prefix>,
}

/// What a settling changed.
#[derive(Debug, Default)]
pub(crate) struct SetChanges {
    /// Sets whose classes are all to be looked at again.
    pub(crate) stale: BTreeSet<SetId>,
    /// Sets in which only identities that match some of this are to be looked at again.
    pub(crate) parts: BTreeMap<SetId, Part>,
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
        for policy in &key.policies {
            self.by_policy.insert((*policy, number));
        }
        for profile in &key.profiles {
            self.by_profile.insert((profile.clone(), number));
        }
        let set = Set {
            key: key.clone(),
            points: 1,
            segments: Vec::new(),
            blocks: Vec::new(),
            kinds: Vec::new(),
            index: Index::default(),
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
        match source {
            Source::Policy(number) => {
                let of = (*number, SetId(0))..=(*number, SetId(u32::MAX));
                let sets = self
                    .by_policy
                    .range(of)
                    .map(|(policy, set)| (*set, *policy));
                self.edited.extend(sets);
            }
            Source::Profile(name) => {
                let of = (name.clone(), SetId(0))..=(name.clone(), SetId(u32::MAX));
                self.stale
                    .extend(self.by_profile.range(of).map(|(_, set)| *set));
            }
        }
    }

    /// Something that all sets may depend on changed.
    pub(crate) fn all_edited(&mut self) {
        self.stale.extend(self.sets.keys());
    }

    /// The sets in which an identity may have another class than nobody has.
    pub(crate) fn telling(&self, who: &IdentityKey) -> BTreeSet<SetId> {
        let mut sets = self.files.loose.clone();
        for selector in &who.selectors {
            let under = (*selector, SetId(0))..=(*selector, SetId(u32::MAX));
            sets.extend(self.files.selectors.range(under).map(|(_, set)| *set));
        }
        for net in who
            .net
            .iter()
            .flat_map(|net| self.files.lengths.covering(*net))
        {
            let under = (net, SetId(0))..=(net, SetId(u32::MAX));
            sets.extend(self.files.nets.range(under).map(|(_, set)| *set));
        }
        sets
    }

    /// A set, if it has been built.
    pub(crate) fn get(&self, number: SetId) -> Option<&Set> {
        self.sets.get(&number)
    }

    /// Forgets sets without points, and builds those that changed.
    pub(crate) fn settle(&mut self, book: Rulebook<'_>, credits: &mut Credits) -> SetChanges {
        let mut changes = SetChanges::default();
        for number in core::mem::take(&mut self.idle) {
            if self.sets.get(&number).is_none_or(|set| set.points > 0) {
                continue;
            }
            let Some(gone) = self.sets.remove(&number) else {
                continue;
            };
            self.files.unfile(number, &gone.index);
            self.numbers.remove(&gone.key);
            for policy in &gone.key.policies {
                self.by_policy.remove(&(*policy, number));
            }
            for profile in &gone.key.profiles {
                self.by_profile.remove(&(profile.clone(), number));
            }
            gone.release(credits);
            changes.ended.insert(number);
        }
        let edited = core::mem::take(&mut self.edited);
        let mut stale = core::mem::take(&mut self.stale);
        for (number, policy) in edited {
            let Some(set) = self.sets.get_mut(&number) else {
                continue;
            };
            if stale.contains(&number) {
                continue;
            }
            let part = changes.parts.entry(number).or_default();
            if !set.exchange(book, policy, number, &mut self.files, part) {
                stale.insert(number);
            }
        }
        for number in stale {
            let Some(set) = self.sets.get_mut(&number) else {
                continue;
            };
            let built = Builder::new(book, credits, &set.key).build(set.points);
            let old = core::mem::replace(set, built);
            self.files.unfile(number, &old.index);
            self.files.file(number, &set.index);
            old.release(credits);
            changes.parts.remove(&number);
            changes.stale.insert(number);
        }
        changes
    }
}

impl Files {
    fn file(&mut self, number: SetId, index: &Index) {
        let selectors = index.selectors.keys().map(|selector| (*selector, number));
        self.selectors.extend(selectors);
        for net in index.nets.keys() {
            self.net(number, *net, true);
        }
        if index.is_loose() {
            self.loose.insert(number);
        }
    }

    fn unfile(&mut self, number: SetId, index: &Index) {
        for selector in index.selectors.keys() {
            self.selectors.remove(&(*selector, number));
        }
        for net in index.nets.keys() {
            self.net(number, *net, false);
        }
        self.loose.remove(&number);
    }

    fn net(&mut self, number: SetId, net: Prefix, there: bool) {
        let changed = match there {
            true => self.nets.insert((net, number)),
            false => self.nets.remove(&(net, number)),
        };
        if changed {
            self.lengths.count(net, there);
        }
    }

    /// Brings the files in line with what a set asks of these.
    fn refile(&mut self, number: SetId, index: &Index, part: &Part) {
        for selector in &part.selectors {
            match index.selectors.contains_key(selector) {
                true => self.selectors.insert((*selector, number)),
                false => self.selectors.remove(&(*selector, number)),
            };
        }
        for net in &part.nets {
            self.net(number, *net, index.nets.contains_key(net));
        }
        match index.is_loose() {
            true => self.loose.insert(number),
            false => self.loose.remove(&number),
        };
    }
}

impl Part {
    /// Notes whom a rule may match. Returns whether that can be said at all.
    fn note(&mut self, body: &Body) -> bool {
        for peer in &body.peers {
            match (&peer.selector, &peer.nets) {
                (Some(selector), _) => drop(self.selectors.insert(*selector)),
                (None, Some(nets)) => self.nets.extend(nets),
                (None, None) => return false,
            }
        }
        true
    }
}

impl Set {
    /// The selectors and networks by which alone the set tells identities apart; `None` where it
    /// looks at more.
    pub(crate) fn asks(&self) -> Option<(impl Iterator<Item = u32>, impl Iterator<Item = Prefix>)> {
        let index = &self.index;
        let asked = (index.selectors.keys().copied(), index.nets.keys().copied());
        (!index.is_loose()).then_some(asked)
    }

    /// What a kind says.
    pub(super) fn kind(&self, number: u32) -> Option<(&Kind, &Side)> {
        let kind = self.kinds.get(number as usize)?.as_ref()?;
        Some((kind, kind.bodies.of(self.key.direction)?))
    }

    fn release(self, credits: &mut Credits) {
        let stops = self.blocks.into_iter().filter_map(|block| block.stop);
        stops.for_each(|(rule, _)| credits.give(rule));
    }

    /// The number of what these bodies say, filed.
    fn number(&mut self, bodies: &Arc<Bodies>) -> Option<u32> {
        let same = |kind: &Option<Kind>| {
            kind.as_ref()
                .is_some_and(|kind| Arc::ptr_eq(&kind.bodies, bodies))
        };
        let side = bodies.of(self.key.direction)?;
        if let Some(known) = self.kinds.iter().position(same) {
            return u32::try_from(known).ok();
        }
        let kind = Kind {
            bodies: bodies.clone(),
            at: Vec::new(),
        };
        let number = match self.kinds.iter().position(Option::is_none) {
            Some(free) => {
                self.kinds[free] = Some(kind);
                free
            }
            None => {
                self.kinds.push(Some(kind));
                self.kinds.len() - 1
            }
        };
        let number = u32::try_from(number).ok()?;
        self.index.file(number, side);
        Some(number)
    }

    /// Puts what a policy says now in place of what it said. Returns whether it could: not where the
    /// policy stops other things than before, or may concern any identity.
    fn exchange(
        &mut self,
        book: Rulebook<'_>,
        policy: PolicyNumber,
        number: SetId,
        files: &mut Files,
        part: &mut Part,
    ) -> bool {
        let direction = self.key.direction;
        let Some(at) = self.key.policies.iter().position(|p| *p == policy) else {
            return false;
        };
        let Some(new) = book.active.policy(policy).cloned() else {
            return false;
        };
        let Some(Segment {
            kind: Some(was), ..
        }) = self.segments.get(at).copied()
        else {
            return false;
        };
        let Some(old) = self.kind(was).map(|(kind, _)| kind.bodies.clone()) else {
            return false;
        };
        if Arc::ptr_eq(&old, &new) {
            return true;
        }
        let (Some(a), Some(b)) = (old.of(direction), new.of(direction)) else {
            return false;
        };
        if a.default_deny != b.default_deny || a.own.tests.len() != b.own.tests.len() {
            return false;
        }
        let longest = a.rules.len().max(b.rules.len());
        for place in 0..longest {
            let (a, b) = (a.rules.get(place), b.rules.get(place));
            if a != b && !a.into_iter().chain(b).all(|body| part.note(body)) {
                return false;
            }
        }
        let place = u32::try_from(at).unwrap_or(u32::MAX);
        let Some(is) = self.number(&new) else {
            return false;
        };
        if let Some(Some(kind)) = self.kinds.get_mut(is as usize) {
            let after = kind.at.partition_point(|other| *other < place);
            kind.at.insert(after, place);
        }
        let slot = &mut self.kinds[was as usize];
        if let Some(kind) = slot {
            kind.at.retain(|other| *other != place);
            if kind.at.is_empty() {
                *slot = None;
                self.index.unfile(was, a);
            }
        }
        self.segments[at].kind = Some(is);
        files.refile(number, &self.index, part);
        true
    }
}

/// Builds a set.
struct Builder<'a> {
    book: Rulebook<'a>,
    credits: &'a mut Credits,
    own: u32,
    set: Set,
}

impl<'a> Builder<'a> {
    fn new(book: Rulebook<'a>, credits: &'a mut Credits, key: &Arc<SetKey>) -> Self {
        Builder {
            book,
            credits,
            own: 0,
            set: Set {
                key: key.clone(),
                points: 0,
                segments: Vec::with_capacity(key.policies.len()),
                blocks: Vec::new(),
                kinds: Vec::new(),
                index: Index::default(),
            },
        }
    }

    fn build(mut self, points: usize) -> Set {
        let key = self.set.key.clone();
        let tier = |policy: &PolicyNumber| self.book.policies.said(*policy).map(|said| &said.tier);
        let tiers = key.policies.chunk_by(|a, b| tier(a) == tier(b));
        for policies in tiers {
            self.tier(policies);
        }
        for (place, name) in key.profiles.iter().enumerate() {
            self.profile(place, name);
        }
        let direction = key.direction;
        self.stop(Credit::NoProfileMatch { direction }, Verdict::Deny);
        self.set.points = points;
        self.set
    }

    fn tier(&mut self, policies: &[PolicyNumber]) {
        let direction = self.set.key.direction;
        let mut isolating = Vec::new();
        for policy in policies {
            let bodies = self.book.active.policy(*policy);
            let side = bodies.and_then(|bodies| bodies.of(direction));
            if side.is_some_and(|side| side.default_deny) {
                isolating.push(*policy);
            }
            self.segment(bodies);
        }
        let first = policies.first();
        let Some(said) = first.and_then(|policy| self.book.policies.said(*policy)) else {
            return;
        };
        let default = match self.book.state.tier(&said.tier).map(|tier| tier.default) {
            Some(TierDefault::Pass) if !on(Fault::TierDefaultPassLost) => TierDefault::Pass,
            _ => TierDefault::Deny,
        };
        let denies = default == TierDefault::Deny && !isolating.is_empty();
        if denies && !on(Fault::DefaultDenyIgnored) {
            let policies = self.book.policies;
            let credit = Credit::TierDefault {
                tier: said.tier.clone(),
                direction,
                policies: isolating
                    .into_iter()
                    .filter_map(|policy| policies.id(policy))
                    .collect(),
            };
            self.stop(credit, Verdict::Deny);
        } else {
            self.block(None, None);
        }
    }

    fn profile(&mut self, place: usize, name: &Str) {
        let direction = self.set.key.direction;
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
        if let Some(bodies) = self.book.active.profile(name) {
            self.segment(Some(bodies));
            return self.block(None, Some(place));
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

    /// A source, with what it says.
    fn segment(&mut self, bodies: Option<&Arc<Bodies>>) {
        let at = u32::try_from(self.set.segments.len()).unwrap_or(u32::MAX);
        let kind = bodies.and_then(|bodies| self.set.number(bodies));
        self.set.segments.push(Segment {
            kind,
            own: self.own,
        });
        let Some(number) = kind else { return };
        if let Some(Some(kind)) = self.set.kinds.get_mut(number as usize) {
            kind.at.push(at);
        }
        if let Some((_, side)) = self.set.kind(number) {
            self.own += u32::try_from(side.own.tests.len()).unwrap_or(0);
        }
    }

    fn stop(&mut self, credit: Credit, verdict: Verdict) {
        let id = self.credits.number(credit);
        self.credits.hold(id);
        self.block(Some((id, verdict)), None);
    }

    fn block(&mut self, stop: Option<(RuleId, Verdict)>, profile: Option<usize>) {
        self.set.blocks.push(Block {
            end: u32::try_from(self.set.segments.len()).unwrap_or(u32::MAX),
            stop,
            profile,
        });
    }
}
