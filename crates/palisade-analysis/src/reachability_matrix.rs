//! The allowed traffic between all end classes of one family, stored as the usual traffic of each class
//! and the exceptions to it.

use crate::end_classes::{EndClass, EndClassifier};
use crate::pair_evaluator::{PairEvaluator, TrafficSetId, TrafficSetInterner};
use crate::rules::{StateRules, to_u32};
use palisade_model::Direction;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The traffic of a class: with most workloads, with most of the outside, and the exceptions, ascending.
#[derive(Clone, Debug, Default)]
struct MatrixRow {
    usual: [TrafficSetId; 2],
    exceptions: Vec<(u32, TrafficSetId)>,
}

impl MatrixRow {
    fn get(&self, class: u32, zone: usize) -> TrafficSetId {
        match self
            .exceptions
            .binary_search_by_key(&class, |(class, _)| *class)
        {
            Ok(at) => self.exceptions[at].1,
            Err(_) => self.usual[zone],
        }
    }
}

/// The classes that a rule's peers match: those listed or, in an inverted zone, all but those.
struct PeerMatches {
    inverted: [bool; 2],
    listed: Vec<u32>,
}

/// The zone of workloads.
pub(crate) const INSIDE: usize = 0;
/// The zone of the outside.
pub(crate) const OUTSIDE: usize = 1;

/// The allowed traffic between the end classes of one family.
pub(crate) struct ReachabilityMatrix {
    /// The zone of each class.
    zones: Vec<usize>,
    egress: Vec<MatrixRow>,
    ingress: Vec<MatrixRow>,
    /// For each source, the destinations whose traffic differs from the usual.
    pub(crate) by_source: Vec<Vec<(u32, TrafficSetId)>>,
    /// For each destination, the sources whose traffic differs from the usual.
    pub(crate) by_destination: Vec<Vec<(u32, TrafficSetId)>>,
    /// For each class, the first class with the same traffic to and from every other.
    pub(crate) representatives: Vec<u32>,
    sets: Rc<TrafficSetInterner>,
}

impl ReachabilityMatrix {
    pub(crate) fn new(
        judge: &PairEvaluator<'_, '_>,
        ends: &EndClassifier<'_>,
        sets: Rc<TrafficSetInterner>,
    ) -> Self {
        let count = ends.classes.len();
        let zones: Vec<usize> = ends.classes.iter().map(zone_of).collect();
        let rows = RowBuilder::new(judge, ends, &zones);
        let egress: Vec<MatrixRow> = (0..count).map(|c| rows.row(c, Direction::Egress)).collect();
        let ingress: Vec<MatrixRow> = (0..count)
            .map(|c| rows.row(c, Direction::Ingress))
            .collect();
        let mut matrix = ReachabilityMatrix {
            zones,
            egress,
            ingress,
            by_source: vec![Vec::new(); count],
            by_destination: vec![Vec::new(); count],
            representatives: Vec::new(),
            sets,
        };
        matrix.combine();
        matrix.representatives = matrix.find_representatives();
        matrix
    }

    /// The allowed traffic from one class to another.
    pub(crate) fn allowed(&self, source: u32, destination: u32) -> TrafficSetId {
        let others = &self.by_destination[destination as usize];
        match others.binary_search_by_key(&source, |(class, _)| *class) {
            Ok(at) => others[at].1,
            Err(_) => self.usual_traffic(source, destination),
        }
    }

    /// What the egress policy of a source allows to most classes of a zone.
    pub(crate) fn usual_egress(&self, source: u32, zone: usize) -> TrafficSetId {
        self.egress[source as usize].usual[zone]
    }

    /// What the ingress policy of a destination allows from most classes of a zone.
    pub(crate) fn usual_ingress(&self, destination: u32, zone: usize) -> TrafficSetId {
        self.ingress[destination as usize].usual[zone]
    }

    fn usual_traffic(&self, source: u32, destination: u32) -> TrafficSetId {
        let [from, to] = [source, destination].map(|class| self.zones[class as usize]);
        self.sets.intersect(
            self.usual_egress(source, to),
            self.usual_ingress(destination, from),
        )
    }

    fn combine(&mut self) {
        let mut senders: Vec<Vec<(u32, TrafficSetId)>> =
            vec![Vec::new(); self.by_destination.len()];
        for (source, row) in self.egress.iter().enumerate() {
            for (destination, set) in &row.exceptions {
                senders[*destination as usize].push((to_u32(source), *set));
            }
        }
        for (to, senders) in senders.into_iter().enumerate() {
            let destination = to_u32(to);
            let taken = self.ingress[to]
                .exceptions
                .iter()
                .map(|(source, _)| *source);
            let mut sources: Vec<u32> = taken.chain(senders.iter().map(|(s, _)| *s)).collect();
            sources.sort_unstable();
            sources.dedup();
            for source in sources {
                let (from, zone) = (source as usize, self.zones[to]);
                let sent = match senders.binary_search_by_key(&source, |(s, _)| *s) {
                    Ok(at) => senders[at].1,
                    Err(_) => self.egress[from].usual[zone],
                };
                let taken = self.ingress[to].get(source, self.zones[from]);
                let set = self.sets.intersect(sent, taken);
                if set != self.usual_traffic(source, destination) {
                    self.by_source[from].push((destination, set));
                    self.by_destination[to].push((source, set));
                }
            }
        }
    }

    /// Classes have the same representative if they have the same traffic with every class of both zones.
    fn find_representatives(&self) -> Vec<u32> {
        let most = |rows: &[MatrixRow], zone: usize| {
            let of_zone = rows.iter().zip(&self.zones).filter(|(_, z)| **z == zone);
            let mut most: Vec<TrafficSetId> = of_zone.map(|(row, _)| row.usual[INSIDE]).collect();
            most.sort_unstable();
            most.dedup();
            most
        };
        let takers = [INSIDE, OUTSIDE].map(|zone| most(&self.ingress, zone));
        let senders = [INSIDE, OUTSIDE].map(|zone| most(&self.egress, zone));
        let mut effects: BTreeMap<(bool, usize, TrafficSetId), Vec<TrafficSetId>> = BTreeMap::new();
        let mut ids: BTreeMap<Vec<TrafficSetId>, u32> = BTreeMap::new();
        let mut effect = |is_sender: bool, zone: usize, set: TrafficSetId| {
            let others = if is_sender { &takers } else { &senders };
            let effect = effects.entry((is_sender, zone, set)).or_insert_with(|| {
                let others = others[zone].iter();
                others
                    .map(|other| self.sets.intersect(set, *other))
                    .collect()
            });
            let next = to_u32(ids.len());
            *ids.entry(effect.clone()).or_insert(next)
        };
        let mut first: BTreeMap<_, u32> = BTreeMap::new();
        let mut twins = Vec::new();
        for class in 0..self.zones.len() {
            let (sends, takes) = (self.egress[class].usual, self.ingress[class].usual);
            let key = (
                self.zones[class],
                [INSIDE, OUTSIDE].map(|zone| effect(true, zone, sends[zone])),
                [INSIDE, OUTSIDE].map(|zone| effect(false, zone, takes[zone])),
                &self.by_source[class],
                &self.by_destination[class],
            );
            twins.push(*first.entry(key).or_insert(to_u32(class)));
        }
        twins
    }
}

/// The zone of an end class.
pub(crate) fn zone_of(class: &EndClass<'_>) -> usize {
    if class.endpoint.is_none_or(|endpoint| endpoint.is_host()) {
        OUTSIDE
    } else {
        INSIDE
    }
}

/// Computes the rows of the matrix.
struct RowBuilder<'r, 'a> {
    judge: &'r PairEvaluator<'r, 'a>,
    zones: &'r [usize],
    index: PeerIndex<'r, 'a>,
}

/// Finds the rules of a class that match each other class.
pub(crate) struct PeerIndex<'r, 'a> {
    rules: &'r StateRules<'a>,
    classes: &'r [EndClass<'a>],
    /// For each rule, the classes that its peers match.
    peer_matches: Vec<Rc<PeerMatches>>,
    /// Classes that have named ports that rules use.
    with_named_ports: Vec<u32>,
}

/// The rules of a class for a direction that match each other class: the same rules for most classes of a
/// zone, others for the rest.
pub(crate) struct RulesByPeer {
    /// The rules that match most classes, by zone.
    pub(crate) usual: [Vec<u32>; 2],
    /// The other classes, ascending.
    pub(crate) unusual: Vec<u32>,
    /// (class, rule) where a class differs from the usual: it matches the rule, or alone does not.
    toggled: Vec<(u32, u32)>,
}

impl RulesByPeer {
    /// The rules that match an unusual class of this zone.
    pub(crate) fn of_unusual(&self, peer: u32, zone: usize) -> Vec<u32> {
        let from = self.toggled.partition_point(|(class, _)| *class < peer);
        let to = self.toggled.partition_point(|(class, _)| *class <= peer);
        let mut relevant = self.usual[zone].clone();
        for (_, rule) in self.toggled.get(from..to).unwrap_or_default() {
            match relevant.binary_search(rule) {
                Ok(at) => drop(relevant.remove(at)),
                Err(at) => relevant.insert(at, *rule),
            }
        }
        relevant
    }

    /// Whether a class is matched by the usual rules of its zone.
    pub(crate) fn is_usual(&self, peer: u32) -> bool {
        self.unusual.binary_search(&peer).is_err()
    }
}

impl<'r, 'a> PeerIndex<'r, 'a> {
    pub(crate) fn new(
        rules: &'r StateRules<'a>,
        classes: &'r [EndClass<'a>],
        zones: &[usize],
    ) -> Self {
        let mut of_tests: Vec<Vec<u32>> = vec![Vec::new(); rules.tests.all.len()];
        let mut with_ports = Vec::new();
        let mut sizes = [0; 2];
        for (class, zone) in classes.iter().zip(zones) {
            let id = to_u32(sizes[INSIDE] + sizes[OUTSIDE]);
            for test in &class.signature.matching_tests {
                of_tests[*test as usize].push(id);
            }
            if !class.signature.ports.is_empty() {
                with_ports.push(id);
            }
            sizes[*zone] += 1;
        }
        let mut known: BTreeMap<&[u32], Rc<PeerMatches>> = BTreeMap::new();
        let matched = rules.all.iter().map(|placed| {
            let matched = known.entry(&placed.peers).or_insert_with(|| {
                let tests = placed.peers.iter();
                let mut all: Vec<u32> = tests
                    .flat_map(|t| &of_tests[*t as usize])
                    .copied()
                    .collect();
                all.sort_unstable();
                all.dedup();
                Rc::new(PeerMatches::new(all, zones, sizes))
            });
            Rc::clone(matched)
        });
        PeerIndex {
            peer_matches: matched.collect(),
            rules,
            classes,
            with_named_ports: with_ports,
        }
    }

    /// The rules of a class for a direction whose test of the local address matches.
    pub(crate) fn applicable_rules(&self, class: usize, direction: Direction) -> Vec<u32> {
        let rules = self.rules;
        let signature = &self.classes[class].signature;
        let of_policies = signature.policies.iter();
        let of_policies = of_policies.map(|policy| &rules.policy_rules[*policy as usize]);
        let of_profiles = signature.profiles.iter();
        let of_profiles = of_profiles.filter_map(|name| rules.profile_rules.get(name));
        let ranges = of_policies.chain(of_profiles);
        let mut all: Vec<u32> = ranges.flat_map(Clone::clone).map(to_u32).collect();
        all.retain(|rule| {
            let placed = &rules.all[*rule as usize];
            let local = placed.local;
            placed.direction == direction
                && local.is_none_or(|local| signature.matching_tests.binary_search(&local).is_ok())
        });
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The rules of a class for a direction, by the class at the other end.
    pub(crate) fn rules_by_peer(&self, class: usize, direction: Direction) -> RulesByPeer {
        let rules = self.applicable_rules(class, direction);
        let usual = [INSIDE, OUTSIDE].map(|zone| {
            let inverted = |rule: &&u32| self.peer_matches[**rule as usize].inverted[zone];
            rules.iter().filter(inverted).copied().collect::<Vec<u32>>()
        });
        let mut toggled: Vec<(u32, u32)> = Vec::new();
        for rule in &rules {
            let listed = self.peer_matches[*rule as usize].listed.iter();
            toggled.extend(listed.map(|class| (*class, *rule)));
        }
        // The peer's named ports matter if a rule has named ports at its end.
        let end = usize::from(direction == Direction::Egress);
        let named = rules
            .iter()
            .any(|rule| self.rules.all[*rule as usize].names_ports[end]);
        let mut classes: Vec<u32> = toggled.iter().map(|(class, _)| *class).collect();
        if named {
            classes.extend(&self.with_named_ports);
        }
        classes.sort_unstable();
        classes.dedup();
        toggled.sort_unstable();
        RulesByPeer {
            usual,
            unusual: classes,
            toggled,
        }
    }
}

impl<'r, 'a> RowBuilder<'r, 'a> {
    fn new(
        judge: &'r PairEvaluator<'r, 'a>,
        ends: &'r EndClassifier<'a>,
        zones: &'r [usize],
    ) -> Self {
        RowBuilder {
            index: PeerIndex::new(judge.rules, &ends.classes, zones),
            judge,
            zones,
        }
    }

    fn row(&self, class: usize, direction: Direction) -> MatrixRow {
        if !self.judge.classes[class].signature.is_endpoint {
            return MatrixRow {
                usual: [TrafficSetInterner::ALL; 2],
                exceptions: Vec::new(),
            };
        }
        let rules = self.index.rules_by_peer(class, direction);
        let most = [INSIDE, OUTSIDE].map(|zone| {
            let usual_peer =
                |peer: &usize| self.zones[*peer] == zone && rules.is_usual(to_u32(*peer));
            let peer = (0..self.zones.len()).find(usual_peer);
            let allowed = |peer| {
                self.judge
                    .allowed_traffic(class, peer, direction, &rules.usual[zone])
            };
            peer.map_or(TrafficSetInterner::NONE, allowed)
        });
        let mut others = Vec::new();
        for peer in &rules.unusual {
            let zone = self.zones[*peer as usize];
            let relevant = rules.of_unusual(*peer, zone);
            let set = self
                .judge
                .allowed_traffic(class, *peer as usize, direction, &relevant);
            if set != most[zone] {
                others.push((*peer, set));
            }
        }
        MatrixRow {
            usual: most,
            exceptions: others,
        }
    }
}

impl PeerMatches {
    fn new(all: Vec<u32>, zones: &[usize], sizes: [usize; 2]) -> Self {
        let mut counts = [0; 2];
        for class in &all {
            counts[zones[*class as usize]] += 1;
        }
        let inverted = [INSIDE, OUTSIDE].map(|zone| counts[zone] * 2 > sizes[zone]);
        if inverted == [false; 2] {
            return PeerMatches {
                inverted,
                listed: all,
            };
        }
        let mut matching = all.into_iter().peekable();
        let listed = (0..zones.len()).map(to_u32).filter(|class| {
            let matches = matching.next_if_eq(class).is_some();
            matches != inverted[zones[*class as usize]]
        });
        PeerMatches {
            inverted,
            listed: listed.collect(),
        }
    }
}
