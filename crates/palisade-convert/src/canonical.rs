//! The exact comparison of policies: what they isolate and what their rules decide, apart from how it is written.
//!
//! Two lists of policies with one canonical form give every flow the same verdict in every cluster. The form leaves
//! out names and lines, and everything that cannot change a verdict: where in a tier a policy stands that isolates,
//! the order of rules of one action, and how peers and ports are grouped. In a tier whose default passes, nothing
//! isolates.
//!
//! Every workload has a namespace, and the label `kubernetes.io/metadata.name` of a namespace is its name.

use crate::peer_form::{PeerForm, split_networks};
use crate::pods::{conjuncts, workloads};
use crate::position::Standing;
use crate::simplify::simplify;
use palisade_model::{
    Action, Direction, DomainPattern, LabelKey, LabelScope, Namespace, Peer, Policy, PolicyMode,
    PortMatch, PortRange, PortSpec, Protocol, Rule, Selector, Str, TrafficMatch, reserved,
    tier_name,
};
use std::collections::{BTreeMap, BTreeSet};

/// One peer, one test of the local address and one of traffic, and of a rule of DNS names the names.
type Atom = (
    Peer,
    Option<Peer>,
    TrafficMatch,
    Option<BTreeSet<DomainPattern>>,
);

/// Rules of one action that stand together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RuleRun {
    action: Action,
    atoms: BTreeSet<Atom>,
}

/// What decides together: the rules of a place for the same pods and direction.
type ListKey = (PolicyMode, Standing, Selector, Direction);

/// The canonical form of policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CanonicalPolicies {
    /// Who is isolated, in which tier.
    isolated: BTreeSet<(PolicyMode, Str, Selector, Direction)>,
    /// The rules of each place.
    lists: BTreeMap<ListKey, Vec<Vec<RuleRun>>>,
}

impl CanonicalPolicies {
    /// The form of some policies.
    pub(crate) fn of<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> Self {
        let mut form = CanonicalPolicies::default();
        for policy in policies {
            let policy = &simplify(policy);
            let subject = canonical_selector(&policy.subject);
            for direction in Direction::BOTH {
                let Some(list) = policy.rules(direction) else {
                    continue;
                };
                let passes = [tier_name::KUBE_ADMIN, tier_name::KUBE_BASELINE];
                if list.default_deny && !passes.contains(&&*policy.tier) {
                    let tier = policy.tier.clone();
                    form.isolated
                        .insert((policy.mode, tier, subject.clone(), direction));
                }
                let runs = rule_runs(&list.rules);
                if !runs.is_empty() {
                    let key = (
                        policy.mode,
                        Standing::of(policy),
                        subject.clone(),
                        direction,
                    );
                    form.add(key, runs);
                }
            }
        }
        form
    }

    fn add(&mut self, key: ListKey, runs: Vec<RuleRun>) {
        let is_union = matches!(key.1, Standing::Allows | Standing::First);
        let lists = self.lists.entry(key).or_default();
        match (lists.first_mut().map(|list| &mut list[..]), &runs[..]) {
            (Some([only]), [run]) if is_union && only.action == run.action => {
                only.atoms.extend(run.atoms.iter().cloned());
                remove_covered(&mut only.atoms);
            }
            _ => {
                lists.push(runs);
                lists.sort();
            }
        }
    }
}

/// The runs of rules of one action, without rules that match nothing.
fn rule_runs(rules: &[Rule]) -> Vec<RuleRun> {
    let mut runs: Vec<RuleRun> = Vec::new();
    for rule in rules {
        let atoms = atoms(rule);
        if atoms.is_empty() {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.action == rule.action => run.atoms.extend(atoms),
            _ => runs.push(RuleRun {
                action: rule.action,
                atoms,
            }),
        }
    }
    for run in &mut runs {
        remove_covered(&mut run.atoms);
    }
    runs
}

fn atoms(rule: &Rule) -> BTreeSet<Atom> {
    let local: Vec<Option<Peer>> = match &rule.local {
        None => vec![None],
        Some(local) => canonical_peers(local).into_iter().map(Some).collect(),
    };
    let mut atoms = BTreeSet::new();
    for peer in rule.peers.iter().flat_map(canonical_peers) {
        for local in &local {
            for traffic in rule.traffic.iter().flat_map(canonical_traffic) {
                let local = local.clone().filter(|local| !local.is_any());
                let names = rule.dns_names.clone();
                atoms.insert((peer.clone(), local, traffic, names));
            }
        }
    }
    atoms
}

/// Removes what another atom of everything covers.
fn remove_covered(atoms: &mut BTreeSet<Atom>) {
    let all = atoms.clone();
    atoms.retain(|(peer, local, traffic, names)| {
        let atom_of = |peer: &Peer, traffic| (peer.clone(), local.clone(), traffic, names.clone());
        let any_traffic = atom_of(peer, TrafficMatch::any());
        let any_peer = atom_of(&Peer::any(), traffic.clone());
        let everything = atom_of(&Peer::any(), TrafficMatch::any());
        let atom = (peer, traffic);
        let is_covered = |wider: &Atom| (&wider.0, &wider.2) != atom && all.contains(wider);
        ![any_traffic, any_peer, everything].iter().any(is_covered)
    });
}

/// The single peers of a peer; none if it matches nothing.
fn canonical_peers(peer: &Peer) -> Vec<Peer> {
    let selector = peer.selector.as_ref().map(canonical_selector);
    if selector == Some(Selector::none()) {
        return Vec::new();
    }
    if let PeerForm::Names(patterns) = PeerForm::of(peer) {
        // Each name by itself, in whatever lists they stand.
        let key = LabelKey::reserved(reserved::DOMAIN);
        let of_names = patterns.into_iter().map(|pattern| Peer {
            selector: Some(Selector::domain(key.clone(), pattern)),
            ..peer.clone()
        });
        return of_names.collect();
    }
    let not_selector = peer.not_selector.as_ref().map(canonical_selector);
    let with_networks = |nets, not_nets| Peer {
        selector: selector.clone(),
        not_selector: not_selector.clone(),
        nets,
        not_nets,
    };
    match &peer.nets {
        Some(nets) => {
            let nets = split_networks(nets, &peer.not_nets).into_iter();
            nets.map(|net| with_networks(Some(vec![net.net]), net.except))
                .collect()
        }
        None => {
            let mut not_nets = peer.not_nets.clone();
            not_nets.sort_unstable();
            not_nets.dedup();
            vec![with_networks(None, not_nets)]
        }
    }
}

/// The single tests of a test; none if it matches nothing.
fn canonical_traffic(traffic: &TrafficMatch) -> Vec<TrafficMatch> {
    let protocols: Vec<Option<Protocol>> = match traffic.protocol {
        None if !traffic.destination.is_any() => Protocol::WITH_PORTS.map(Some).to_vec(),
        protocol => vec![protocol],
    };
    let ports: Vec<PortMatch> = match &traffic.destination.any_of {
        None => vec![traffic.destination.clone()],
        Some(specs) => {
            let port = |spec: &PortSpec| PortMatch {
                any_of: (*spec != PortSpec::Range(PortRange::ALL)).then(|| vec![spec.clone()]),
                not: traffic.destination.not.clone(),
            };
            specs.iter().map(port).collect()
        }
    };
    let with_protocol = |protocol: &Option<Protocol>, destination: &PortMatch| TrafficMatch {
        protocol: *protocol,
        destination: destination.clone(),
        ..traffic.clone()
    };
    let each = protocols.iter();
    each.flat_map(|protocol| ports.iter().map(move |port| with_protocol(protocol, port)))
        .collect()
}

/// A selector of workloads with the name of the namespace in one form; every other selector as it is.
fn canonical_selector(selector: &Selector) -> Selector {
    let parts = conjuncts(selector);
    if !parts.contains(&workloads()) {
        return selector.clone();
    }
    let name = |key: &LabelKey| {
        let is_label = key.scope == LabelScope::Namespace && key.name == Namespace::NAME_LABEL;
        is_label || *key == LabelKey::reserved(reserved::NAMESPACE)
    };
    let own = || LabelKey::reserved(reserved::NAMESPACE);
    let part = |part: &Selector| match part {
        Selector::In(key, values) if name(key) => Selector::In(own(), values.clone()),
        Selector::Has(key) if name(key) => Selector::all(),
        Selector::Not(inner) => match &**inner {
            Selector::In(key, values) if name(key) => {
                Selector::negate(Selector::In(own(), values.clone()))
            }
            Selector::Has(key) if name(key) => Selector::none(),
            _ => part.clone(),
        },
        _ => part.clone(),
    };
    Selector::and(parts.iter().map(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_namespace_has_one_form() {
        let label = LabelKey::namespace(Namespace::NAME_LABEL);
        let reserved = LabelKey::reserved(reserved::NAMESPACE);
        let with_label = |key| Selector::and([workloads(), Selector::equals(key, "shop")]);
        assert_eq!(
            canonical_selector(&with_label(label)),
            canonical_selector(&with_label(reserved.clone()))
        );
        let any = Selector::and([workloads(), Selector::has(reserved)]);
        assert_eq!(canonical_selector(&any), workloads());
    }

    #[test]
    fn a_port_of_no_protocol_is_one_of_each_with_ports() {
        let named = TrafficMatch {
            destination: PortMatch::one_of([PortSpec::Named("web".into())]),
            ..TrafficMatch::any()
        };
        assert_eq!(canonical_traffic(&named).len(), 3);
        assert_eq!(
            canonical_traffic(&TrafficMatch::any()),
            [TrafficMatch::any()]
        );
    }
}
