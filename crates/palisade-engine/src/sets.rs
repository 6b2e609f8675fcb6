//! Policy sets: the applicable rules of one direction, shared by all points with the same key.
//!
//! The key of a set has the policies and profiles in order, and how their rules' references to the
//! endpoint's local end resolve. Sources (policies and profiles) with equal rules share one rule
//! group. An edit of a policy replaces only the rules of that policy, and affects only the
//! identities that the changed rules name. Each identity has a class, compiled from the rules that
//! it matches up to the first that decides all traffic.

use crate::active_rules::{ActiveRules, ResolvedDirectionRules, ResolvedRules};
use crate::budget::{AuditOmission, ExceededLimit};
use crate::identities::IdentityKey;
use crate::judged_traffic::JudgedTraffic;
use crate::peer_rule_index::{PeerRuleIndex, RuleGroupNumber};
use crate::policy_set_index::{ChangedPeers, PolicySetIndex};
use crate::program_pool::CausePool;
use crate::selector_index::SelectorNumber;
use crate::store::{NamedPolicies, PolicyNumber};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use builder::PolicySetBuilder;
use palisade_model::{Direction, Family, PolicyMode, PolicyView, Prefix, Protocol, State, Str};
use palisade_tables::{PolicySetId, RuleId, Verdict};

mod builder;

/// What distinguishes a policy set from all others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PolicySetKey {
    pub(crate) direction: Direction,
    /// The traffic that it judges.
    pub(crate) traffic: JudgedTraffic,
    /// Whether the endpoint is in audit.
    pub(crate) audit: bool,
    pub(crate) policies: Vec<PolicyNumber>,
    pub(crate) profiles: Vec<Str>,
    /// The result of each test of the local address, in the order of the rules.
    pub(crate) local_tests: Vec<bool>,
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
    group: Option<RuleGroupNumber>,
    /// Whether it is enforced.
    pub(super) mode: PolicyMode,
    /// Whether it needs the answers of the DNS servers that the endpoint asks.
    observes_dns: bool,
    /// The index of its first test in [`PolicySetKey::local_tests`].
    pub(super) first_local_test: u32,
}

/// Sources that decide together, those of a tier or one profile, with the fallback for what none of
/// them decides.
#[derive(Debug)]
pub(super) struct DecisionBlock {
    /// The position after its last source.
    pub(super) end: u32,
    pub(super) fallback: Option<(RuleId, Verdict)>,
    /// The fallback if nothing were in audit.
    pub(super) audit_fallback: Option<(RuleId, Verdict)>,
    /// For a profile, its index in [`PolicySetKey::profiles`].
    pub(super) profile: Option<usize>,
}

impl DecisionBlock {
    /// The fallback in a view.
    pub(super) fn fallback_in(&self, view: PolicyView) -> Option<(RuleId, Verdict)> {
        match view {
            PolicyView::Enforced => self.fallback,
            PolicyView::Audit => self.audit_fallback,
        }
    }
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
    /// The limit that it would exceed with what would be decided if nothing were in audit, so that it is
    /// compiled without that.
    pub(super) omits_audit: Option<AuditOmission>,
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
            omits_audit: None,
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
                let range = (*number, PolicySetId(0))..=(*number, PolicySetId(u32::MAX));
                let sets = self
                    .by_policy
                    .range(range)
                    .map(|(policy, set)| (*set, *policy));
                self.edited.extend(sets);
            }
            PolicyOrProfile::Profile(name) => {
                let range = (name.clone(), PolicySetId(0))..=(name.clone(), PolicySetId(u32::MAX));
                self.stale
                    .extend(self.by_profile.range(range).map(|(_, set)| *set));
            }
        }
    }

    /// Marks the sets of a policy that moved: one that is the same policies in the same order may have them in other tiers.
    pub(crate) fn mark_moved(&mut self, policy: PolicyNumber) {
        let range = (policy, PolicySetId(0))..=(policy, PolicySetId(u32::MAX));
        (self.stale).extend(self.by_policy.range(range).map(|(_, set)| *set));
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

    /// Sets the limit for which a set is compiled without what would be decided if nothing were in audit.
    pub(crate) fn set_omits_audit(&mut self, number: PolicySetId, omission: Option<AuditOmission>) {
        if let Some(set) = self.sets.get_mut(&number) {
            set.omits_audit = omission;
        }
    }

    /// The sets that are compiled without what would be decided if nothing were in audit.
    pub(crate) fn omitting_audit(&self) -> impl Iterator<Item = (PolicySetId, &PolicySetRules)> {
        let sets = self
            .sets
            .iter()
            .filter(|(_, set)| set.omits_audit.is_some());
        sets.map(|(number, set)| (*number, set))
    }

    /// Removes sets without points, and builds those that changed.
    pub(crate) fn recompute(
        &mut self,
        inputs: PolicySetInputs<'_>,
        causes: &mut CausePool,
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
            gone.release(causes);
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
            let built = PolicySetBuilder::new(inputs, causes, &set.key).build(set.points);
            let old = core::mem::replace(set, built);
            self.index.remove(number, &old.index);
            self.index.insert(number, &set.index);
            old.release(causes);
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
    ) -> Option<(
        impl Iterator<Item = SelectorNumber>,
        impl Iterator<Item = Prefix>,
    )> {
        let index = &self.index;
        let asked = (index.selectors.keys().copied(), index.nets.keys().copied());
        (!index.needs_all_identities()).then_some(asked)
    }

    /// A rule group, and its rules of the set's direction.
    pub(super) fn group(
        &self,
        number: RuleGroupNumber,
    ) -> Option<(&RuleGroup, &ResolvedDirectionRules)> {
        let kind = self.groups.get(number.0 as usize)?.as_ref()?;
        Some((kind, kind.rules.direction(self.key.direction)?))
    }

    /// The limit for which it is compiled without what would be decided if nothing were in audit.
    pub(crate) fn omits_audit(&self) -> Option<AuditOmission> {
        self.omits_audit
    }

    /// The same, if the limit is that of the host.
    pub(crate) fn audit_omitted_for_host(&self) -> Option<AuditOmission> {
        let omission = self.omits_audit;
        omission.filter(|omission| omission.exceeded == ExceededLimit::Host)
    }

    /// Whether one of the policies, in audit or not, needs the answers of the DNS servers that the endpoint asks.
    pub(super) fn observes_dns(&self) -> bool {
        self.segments.iter().any(|segment| segment.observes_dns)
    }

    /// Whether anything in audit applies: the endpoint, or one of the policies.
    pub(crate) fn is_audited(&self) -> bool {
        let mut segments = self.segments.iter();
        self.key.audit || segments.any(|segment| segment.mode == PolicyMode::Audit)
    }

    fn release(self, causes: &mut CausePool) {
        for block in self.blocks {
            let fallbacks = PolicyView::BOTH.map(|view| block.fallback_in(view));
            for (rule, _) in fallbacks.into_iter().flatten() {
                causes.release_from_set(rule);
            }
        }
    }

    /// The group of these rules, new or known. `None` if they do not govern the direction.
    fn intern_rules(&mut self, bodies: &Arc<ResolvedRules>) -> Option<RuleGroupNumber> {
        let same = |kind: &Option<RuleGroup>| {
            kind.as_ref()
                .is_some_and(|kind| Arc::ptr_eq(&kind.rules, bodies))
        };
        let side = bodies.direction(self.key.direction)?;
        if let Some(known) = self.groups.iter().position(same) {
            return u32::try_from(known).ok().map(RuleGroupNumber);
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
        let number = RuleGroupNumber(u32::try_from(number).ok()?);
        self.index.insert(number, side);
        Some(number)
    }

    /// Replaces the rules of one policy. Returns false if the set must be built anew: if the
    /// policy's mode, default denial or own tests change, or whether it observes DNS, or if a changed rule may match
    /// any identity.
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
            mode,
            observes_dns,
            ..
        }) = self.segments.get(at).copied()
        else {
            return false;
        };
        let body = inputs.policies.body(policy);
        if body.is_none_or(|body| (body.mode, body.observes_dns) != (mode, observes_dns)) {
            return false;
        }
        let Some(old) = self.group(old_group).map(|(kind, _)| kind.rules.clone()) else {
            return false;
        };
        if Arc::ptr_eq(&old, &new) {
            return true;
        }
        let (Some(a), Some(b)) = (old.direction(direction), new.direction(direction)) else {
            return false;
        };
        if a.default_deny != b.default_deny || a.local_end.tests.len() != b.local_end.tests.len() {
            return false;
        }
        let longest = a.rules.len().max(b.rules.len());
        for position in 0..longest {
            let (a, b) = (a.rules.get(position), b.rules.get(position));
            if a != b
                && !a
                    .into_iter()
                    .chain(b)
                    .all(|body| changed_peers.add_rule_peers(body))
            {
                return false;
            }
        }
        let position = u32::try_from(at).unwrap_or(u32::MAX);
        let Some(new_group) = self.intern_rules(&new) else {
            return false;
        };
        if let Some(Some(kind)) = self.groups.get_mut(new_group.0 as usize) {
            let after = kind.positions.partition_point(|other| *other < position);
            kind.positions.insert(after, position);
        }
        let slot = &mut self.groups[old_group.0 as usize];
        if let Some(kind) = slot {
            kind.positions.retain(|other| *other != position);
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
