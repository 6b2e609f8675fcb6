//! Policy sets: the applicable rules of one direction, shared by all points with the same key.
//!
//! The key of a set has the policies and profiles in order, and how their rules' references to the
//! endpoint's own end resolve. Sources (policies and profiles) with equal rules share one rule
//! group. An edit of a policy replaces only the rules of that policy, and affects only the
//! identities that the changed rules name. Each identity has a class, compiled from the rules that
//! it matches up to the first that decides all traffic.

use crate::active_policies::is_builtin;
use crate::active_rules::{ActiveRules, ResolvedDirectionRules, ResolvedRules};
use crate::faults::EngineFault;
use crate::identities::IdentityKey;
use crate::peer_rule_index::PeerRuleIndex;
use crate::policy_set_index::{ChangedPeers, PolicySetIndex};
use crate::program_pool::CreditPool;
use crate::store::{NamedPolicies, PolicyNumber};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{Direction, Family, Prefix, Protocol, RuleOrigin, State, Str, TierDefault};
use palisade_tables::{Credit, PolicySetId, RuleId, Verdict};

/// What distinguishes a policy set from all others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PolicySetKey {
    pub(crate) direction: Direction,
    pub(crate) policies: Vec<PolicyNumber>,
    pub(crate) profiles: Vec<Str>,
    /// The result of each test of the own address, in the order of the rules.
    pub(crate) own_tests: Vec<bool>,
    /// The numbers of the own named ports that rules use.
    pub(crate) ports: Vec<(Str, Protocol, u16)>,
    /// The address family, if a rule depends on it.
    pub(crate) family: Option<Family>,
}

/// The source of rules.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PolicyOrProfile {
    Policy(PolicyNumber),
    Profile(Str),
}

/// What policy sets are built from.
#[derive(Clone, Copy)]
pub(crate) struct PolicySetInputs<'a> {
    pub(crate) state: &'a State,
    pub(crate) policies: NamedPolicies<'a>,
    pub(crate) active_rules: &'a ActiveRules,
}

/// Equal rules of one or several sources in a set.
#[derive(Debug)]
pub(super) struct RuleGroup {
    rules: Arc<ResolvedRules>,
    /// The positions of the sources in the set, in order.
    pub(super) positions: Vec<u32>,
}

/// One source in a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceSegment {
    /// The rule group; `None` if the source has no rules.
    group: Option<u32>,
    /// The index of its first test in [`PolicySetKey::own_tests`].
    pub(super) first_own_test: u32,
}

/// Sources that decide together, those of a tier or one profile, with the fallback for what none of
/// them decides.
#[derive(Debug)]
pub(super) struct DecisionBlock {
    /// The position after its last source.
    pub(super) end: u32,
    pub(super) fallback: Option<(RuleId, Verdict)>,
    /// For a profile, its index in [`PolicySetKey::profiles`].
    pub(super) profile: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct PolicySetRules {
    pub(super) key: Arc<PolicySetKey>,
    points: usize,
    pub(super) segments: Vec<SourceSegment>,
    pub(super) blocks: Vec<DecisionBlock>,
    /// By group number; `None` where the number is free.
    groups: Vec<Option<RuleGroup>>,
    pub(super) index: PeerRuleIndex,
}

/// All policy sets.
#[derive(Debug, Default)]
pub(crate) struct PolicySets {
    numbers: BTreeMap<Arc<PolicySetKey>, PolicySetId>,
    sets: BTreeMap<PolicySetId, PolicySetRules>,
    by_policy: BTreeSet<(PolicyNumber, PolicySetId)>,
    by_profile: BTreeSet<(Str, PolicySetId)>,
    index: PolicySetIndex,
    next: u32,
    /// Sets to build, or to build again.
    stale: BTreeSet<PolicySetId>,
    /// Sets, and those of their policies whose rules changed.
    edited: BTreeSet<(PolicySetId, PolicyNumber)>,
    unused: BTreeSet<PolicySetId>,
}

/// Changes of one recomputation.
#[derive(Debug, Default)]
pub(crate) struct PolicySetChanges {
    /// Sets of which all classes have to be recomputed.
    pub(crate) stale: BTreeSet<PolicySetId>,
    /// Sets in which only identities that match one of these peers have to be recomputed.
    pub(crate) changed_peers: BTreeMap<PolicySetId, ChangedPeers>,
    /// Removed sets.
    pub(crate) removed: BTreeSet<PolicySetId>,
}

impl PolicySets {
    /// An unused set number.
    pub(crate) fn allocate_id(&mut self) -> PolicySetId {
        let set = PolicySetId(self.next);
        self.next = self.next.wrapping_add(1);
        set
    }

    /// The number of the set with this key, new or known; counts one point more.
    pub(crate) fn acquire(&mut self, key: &Arc<PolicySetKey>) -> PolicySetId {
        if let Some(number) = self.numbers.get(key) {
            let number = *number;
            if let Some(set) = self.sets.get_mut(&number) {
                set.points += 1;
            }
            return number;
        }
        let number = self.allocate_id();
        self.numbers.insert(key.clone(), number);
        for policy in &key.policies {
            self.by_policy.insert((*policy, number));
        }
        for profile in &key.profiles {
            self.by_profile.insert((profile.clone(), number));
        }
        let set = PolicySetRules {
            key: key.clone(),
            points: 1,
            segments: Vec::new(),
            blocks: Vec::new(),
            groups: Vec::new(),
            index: PeerRuleIndex::default(),
        };
        self.sets.insert(number, set);
        self.stale.insert(number);
        number
    }

    /// The key of a known set that equals this one.
    pub(crate) fn shared_key(&self, key: &PolicySetKey) -> Option<&Arc<PolicySetKey>> {
        self.numbers.get_key_value(key).map(|(key, _)| key)
    }

    /// Counts one point less.
    pub(crate) fn release(&mut self, number: PolicySetId) {
        if let Some(set) = self.sets.get_mut(&number) {
            set.points -= 1;
            if set.points == 0 {
                self.unused.insert(number);
            }
        }
    }

    /// Marks the sets of a source whose rules changed.
    pub(crate) fn mark_edited(&mut self, source: &PolicyOrProfile) {
        match source {
            PolicyOrProfile::Policy(number) => {
                let of = (*number, PolicySetId(0))..=(*number, PolicySetId(u32::MAX));
                let sets = self
                    .by_policy
                    .range(of)
                    .map(|(policy, set)| (*set, *policy));
                self.edited.extend(sets);
            }
            PolicyOrProfile::Profile(name) => {
                let of = (name.clone(), PolicySetId(0))..=(name.clone(), PolicySetId(u32::MAX));
                self.stale
                    .extend(self.by_profile.range(of).map(|(_, set)| *set));
            }
        }
    }

    /// Marks all sets to be built again.
    pub(crate) fn mark_all_stale(&mut self) {
        self.stale.extend(self.sets.keys());
    }

    /// The sets in which an identity may have a class other than the default; may contain repeats.
    pub(crate) fn distinguishing_sets(&self, identity: &IdentityKey) -> Vec<PolicySetId> {
        self.index.distinguishing_sets(identity)
    }

    /// A set, if it is built.
    pub(crate) fn get(&self, number: PolicySetId) -> Option<&PolicySetRules> {
        self.sets.get(&number)
    }

    /// Removes sets without points, and builds those that changed.
    pub(crate) fn recompute(
        &mut self,
        inputs: PolicySetInputs<'_>,
        credits: &mut CreditPool,
    ) -> PolicySetChanges {
        let mut changes = PolicySetChanges::default();
        for number in core::mem::take(&mut self.unused) {
            if self.sets.get(&number).is_none_or(|set| set.points > 0) {
                continue;
            }
            let Some(gone) = self.sets.remove(&number) else {
                continue;
            };
            self.index.remove(number, &gone.index);
            self.numbers.remove(&gone.key);
            for policy in &gone.key.policies {
                self.by_policy.remove(&(*policy, number));
            }
            for profile in &gone.key.profiles {
                self.by_profile.remove(&(profile.clone(), number));
            }
            gone.release(credits);
            changes.removed.insert(number);
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
            let part = changes.changed_peers.entry(number).or_default();
            if !set.replace_rules(inputs, policy, number, &mut self.index, part) {
                stale.insert(number);
            }
        }
        for number in stale {
            let Some(set) = self.sets.get_mut(&number) else {
                continue;
            };
            let built = PolicySetBuilder::new(inputs, credits, &set.key).build(set.points);
            let old = core::mem::replace(set, built);
            self.index.remove(number, &old.index);
            self.index.insert(number, &set.index);
            old.release(credits);
            changes.changed_peers.remove(&number);
            changes.stale.insert(number);
        }
        changes
    }
}

impl PolicySetRules {
    /// The selectors and networks by which the set distinguishes identities; `None` if it may
    /// distinguish any identity.
    pub(crate) fn peer_references(
        &self,
    ) -> Option<(impl Iterator<Item = u32>, impl Iterator<Item = Prefix>)> {
        let index = &self.index;
        let asked = (index.selectors.keys().copied(), index.nets.keys().copied());
        (!index.needs_all_identities()).then_some(asked)
    }

    /// A rule group, and its rules of the set's direction.
    pub(super) fn group(&self, number: u32) -> Option<(&RuleGroup, &ResolvedDirectionRules)> {
        let kind = self.groups.get(number as usize)?.as_ref()?;
        Some((kind, kind.rules.direction(self.key.direction)?))
    }

    fn release(self, credits: &mut CreditPool) {
        let stops = self.blocks.into_iter().filter_map(|block| block.fallback);
        stops.for_each(|(rule, _)| credits.release_from_set(rule));
    }

    /// The group of these rules, new or known. `None` if they do not govern the direction.
    fn intern_rules(&mut self, bodies: &Arc<ResolvedRules>) -> Option<u32> {
        let same = |kind: &Option<RuleGroup>| {
            kind.as_ref()
                .is_some_and(|kind| Arc::ptr_eq(&kind.rules, bodies))
        };
        let side = bodies.direction(self.key.direction)?;
        if let Some(known) = self.groups.iter().position(same) {
            return u32::try_from(known).ok();
        }
        let kind = RuleGroup {
            rules: bodies.clone(),
            positions: Vec::new(),
        };
        let number = match self.groups.iter().position(Option::is_none) {
            Some(free) => {
                self.groups[free] = Some(kind);
                free
            }
            None => {
                self.groups.push(Some(kind));
                self.groups.len() - 1
            }
        };
        let number = u32::try_from(number).ok()?;
        self.index.insert(number, side);
        Some(number)
    }

    /// Replaces the rules of one policy. Returns false if the set must be built anew: if the
    /// policy's default denial or own tests change, or if a changed rule may match any identity.
    fn replace_rules(
        &mut self,
        inputs: PolicySetInputs<'_>,
        policy: PolicyNumber,
        number: PolicySetId,
        index: &mut PolicySetIndex,
        changed_peers: &mut ChangedPeers,
    ) -> bool {
        let direction = self.key.direction;
        let Some(at) = self.key.policies.iter().position(|p| *p == policy) else {
            return false;
        };
        let Some(new) = inputs.active_rules.policy(policy).cloned() else {
            return false;
        };
        let Some(SourceSegment {
            group: Some(old_group),
            ..
        }) = self.segments.get(at).copied()
        else {
            return false;
        };
        let Some(old) = self.group(old_group).map(|(kind, _)| kind.rules.clone()) else {
            return false;
        };
        if Arc::ptr_eq(&old, &new) {
            return true;
        }
        let (Some(a), Some(b)) = (old.direction(direction), new.direction(direction)) else {
            return false;
        };
        if a.default_deny != b.default_deny || a.own_end.tests.len() != b.own_end.tests.len() {
            return false;
        }
        let longest = a.rules.len().max(b.rules.len());
        for place in 0..longest {
            let (a, b) = (a.rules.get(place), b.rules.get(place));
            if a != b
                && !a
                    .into_iter()
                    .chain(b)
                    .all(|body| changed_peers.add_rule_peers(body))
            {
                return false;
            }
        }
        let place = u32::try_from(at).unwrap_or(u32::MAX);
        let Some(new_group) = self.intern_rules(&new) else {
            return false;
        };
        if let Some(Some(kind)) = self.groups.get_mut(new_group as usize) {
            let after = kind.positions.partition_point(|other| *other < place);
            kind.positions.insert(after, place);
        }
        let slot = &mut self.groups[old_group as usize];
        if let Some(kind) = slot {
            kind.positions.retain(|other| *other != place);
            if kind.positions.is_empty() {
                *slot = None;
                self.index.remove(old_group, a);
            }
        }
        self.segments[at].group = Some(new_group);
        index.update(number, &self.index, changed_peers);
        true
    }
}

/// Builds a set.
struct PolicySetBuilder<'a> {
    inputs: PolicySetInputs<'a>,
    credits: &'a mut CreditPool,
    next_own_test: u32,
    set: PolicySetRules,
}

impl<'a> PolicySetBuilder<'a> {
    fn new(
        inputs: PolicySetInputs<'a>,
        credits: &'a mut CreditPool,
        key: &Arc<PolicySetKey>,
    ) -> Self {
        PolicySetBuilder {
            inputs,
            credits,
            next_own_test: 0,
            set: PolicySetRules {
                key: key.clone(),
                points: 0,
                segments: Vec::with_capacity(key.policies.len()),
                blocks: Vec::new(),
                groups: Vec::new(),
                index: PeerRuleIndex::default(),
            },
        }
    }

    fn build(mut self, points: usize) -> PolicySetRules {
        let key = self.set.key.clone();
        let all = self.inputs.policies;
        let tier = |policy: &PolicyNumber| all.body(*policy).map(|body| &body.tier);
        let tiers = key.policies.chunk_by(|a, b| tier(a) == tier(b));
        for policies in tiers {
            self.add_tier(policies);
        }
        for (place, name) in key.profiles.iter().enumerate() {
            self.add_profile(place, name);
        }
        let direction = key.direction;
        self.add_fallback(Credit::NoProfileMatch { direction }, Verdict::Deny);
        self.set.points = points;
        self.set
    }

    fn add_tier(&mut self, policies: &[PolicyNumber]) {
        let direction = self.set.key.direction;
        let mut isolating = Vec::new();
        for policy in policies {
            let bodies = self.inputs.active_rules.policy(*policy);
            let side = bodies.and_then(|bodies| bodies.direction(direction));
            if side.is_some_and(|side| side.default_deny) {
                isolating.push(*policy);
            }
            self.add_source(bodies);
        }
        let first = policies.first();
        let Some(body) = first.and_then(|policy| self.inputs.policies.body(*policy)) else {
            return;
        };
        let default = match self.inputs.state.tier(&body.tier).map(|tier| tier.default) {
            Some(TierDefault::Pass) if !EngineFault::TierDefaultPassLost.is_injected() => {
                TierDefault::Pass
            }
            _ => TierDefault::Deny,
        };
        let denies = default == TierDefault::Deny && !isolating.is_empty();
        if denies && !EngineFault::DefaultDenyIgnored.is_injected() {
            let policies = self.inputs.policies;
            let credit = Credit::TierDefault {
                tier: body.tier.clone(),
                direction,
                policies: isolating
                    .into_iter()
                    .filter_map(|policy| policies.id(policy))
                    .collect(),
            };
            self.add_fallback(credit, Verdict::Deny);
        } else {
            self.add_block(None, None);
        }
    }

    fn add_profile(&mut self, place: usize, name: &Str) {
        let direction = self.set.key.direction;
        if is_builtin(name) || EngineFault::ProfileAllowAlways.is_injected() {
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
            return self.add_fallback(credit, Verdict::Allow);
        }
        if let Some(bodies) = self.inputs.active_rules.profile(name) {
            self.add_source(Some(bodies));
            return self.add_block(None, Some(place));
        }
        let credit = Credit::MissingProfile {
            profile: name.clone(),
            direction,
        };
        let verdict = match EngineFault::MissingProfileAllows.is_injected() {
            true => Verdict::Allow,
            false => Verdict::Deny,
        };
        self.add_fallback(credit, verdict);
    }

    /// Adds a source with its rules.
    fn add_source(&mut self, bodies: Option<&Arc<ResolvedRules>>) {
        let at = u32::try_from(self.set.segments.len()).unwrap_or(u32::MAX);
        let kind = bodies.and_then(|bodies| self.set.intern_rules(bodies));
        self.set.segments.push(SourceSegment {
            group: kind,
            first_own_test: self.next_own_test,
        });
        let Some(number) = kind else { return };
        if let Some(Some(kind)) = self.set.groups.get_mut(number as usize) {
            kind.positions.push(at);
        }
        if let Some((_, side)) = self.set.group(number) {
            self.next_own_test += u32::try_from(side.own_end.tests.len()).unwrap_or(0);
        }
    }

    fn add_fallback(&mut self, credit: Credit, verdict: Verdict) {
        let id = self.credits.intern(credit);
        self.credits.acquire_for_set(id);
        self.add_block(Some((id, verdict)), None);
    }

    fn add_block(&mut self, stop: Option<(RuleId, Verdict)>, profile: Option<usize>) {
        self.set.blocks.push(DecisionBlock {
            end: u32::try_from(self.set.segments.len()).unwrap_or(u32::MAX),
            fallback: stop,
            profile,
        });
    }
}
