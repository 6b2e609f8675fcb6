//! What is allowed between all classes of one family, kept as what most pairs get and where it differs.

use crate::ends::Ends;
use crate::judge::{Judge, SetId, Sets};
use crate::rules::{Rules, number};
use palisade_model::Direction;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a class gets with most peers that are workloads, with most that are outside, and with the
/// others, ascending.
#[derive(Clone, Debug, Default)]
struct Row {
    most: [SetId; 2],
    others: Vec<(u32, SetId)>,
}

impl Row {
    fn at(&self, class: u32, zone: usize) -> SetId {
        match self
            .others
            .binary_search_by_key(&class, |(class, _)| *class)
        {
            Ok(at) => self.others[at].1,
            Err(_) => self.most[zone],
        }
    }
}

/// The classes that some peers match: those listed, or, by zone, all but those.
struct Matched {
    inverted: [bool; 2],
    listed: Vec<u32>,
}

/// The zone of workloads.
pub(crate) const INSIDE: usize = 0;
/// The zone of everything else.
pub(crate) const OUTSIDE: usize = 1;

/// What is allowed between the classes of one family.
pub(crate) struct Matrix {
    /// The zone of each class.
    zones: Vec<usize>,
    egress: Vec<Row>,
    ingress: Vec<Row>,
    /// For each source the destinations that get something else than most of its kind do.
    pub(crate) from: Vec<Vec<(u32, SetId)>>,
    /// For each destination the sources, likewise.
    pub(crate) to: Vec<Vec<(u32, SetId)>>,
    /// For each class the first that is treated alike in everything.
    pub(crate) twins: Vec<u32>,
    sets: Rc<Sets>,
}

impl Matrix {
    pub(crate) fn new(judge: &Judge<'_, '_>, ends: &Ends<'_>, sets: Rc<Sets>) -> Self {
        let count = ends.classes.len();
        let outside = |class: &crate::ends::Class<'_>| {
            usize::from(class.endpoint.is_none_or(|endpoint| endpoint.host))
        };
        let zones: Vec<usize> = ends.classes.iter().map(outside).collect();
        let rows = Rows::new(judge, ends, &zones);
        let egress: Vec<Row> = (0..count).map(|c| rows.row(c, Direction::Egress)).collect();
        let ingress: Vec<Row> = (0..count)
            .map(|c| rows.row(c, Direction::Ingress))
            .collect();
        let mut matrix = Matrix {
            zones,
            egress,
            ingress,
            from: vec![Vec::new(); count],
            to: vec![Vec::new(); count],
            twins: Vec::new(),
            sets,
        };
        matrix.combine();
        matrix.twins = matrix.find_twins();
        matrix
    }

    /// What is allowed from one class to another.
    pub(crate) fn allowed(&self, source: u32, destination: u32) -> SetId {
        let others = &self.to[destination as usize];
        match others.binary_search_by_key(&source, |(class, _)| *class) {
            Ok(at) => others[at].1,
            Err(_) => self.usual(source, destination),
        }
    }

    /// What a source may send to most classes of a zone, if these take it.
    pub(crate) fn sends(&self, source: u32, zone: usize) -> SetId {
        self.egress[source as usize].most[zone]
    }

    /// What a destination takes from most classes of a zone, if these send it.
    pub(crate) fn takes(&self, destination: u32, zone: usize) -> SetId {
        self.ingress[destination as usize].most[zone]
    }

    fn usual(&self, source: u32, destination: u32) -> SetId {
        let [from, to] = [source, destination].map(|class| self.zones[class as usize]);
        self.sets
            .and(self.sends(source, to), self.takes(destination, from))
    }

    fn combine(&mut self) {
        let mut senders: Vec<Vec<(u32, SetId)>> = vec![Vec::new(); self.to.len()];
        for (source, row) in self.egress.iter().enumerate() {
            for (destination, set) in &row.others {
                senders[*destination as usize].push((number(source), *set));
            }
        }
        for (to, senders) in senders.into_iter().enumerate() {
            let destination = number(to);
            let taken = self.ingress[to].others.iter().map(|(source, _)| *source);
            let mut sources: Vec<u32> = taken.chain(senders.iter().map(|(s, _)| *s)).collect();
            sources.sort_unstable();
            sources.dedup();
            for source in sources {
                let (from, zone) = (source as usize, self.zones[to]);
                let sent = match senders.binary_search_by_key(&source, |(s, _)| *s) {
                    Ok(at) => senders[at].1,
                    Err(_) => self.egress[from].most[zone],
                };
                let taken = self.ingress[to].at(source, self.zones[from]);
                let set = self.sets.and(sent, taken);
                if set != self.usual(source, destination) {
                    self.from[from].push((destination, set));
                    self.to[to].push((source, set));
                }
            }
        }
    }

    /// Classes are twins if they get the same with every class of either zone.
    fn find_twins(&self) -> Vec<u32> {
        let most = |rows: &[Row], zone: usize| {
            let of_zone = rows.iter().zip(&self.zones).filter(|(_, z)| **z == zone);
            let mut most: Vec<SetId> = of_zone.map(|(row, _)| row.most[INSIDE]).collect();
            most.sort_unstable();
            most.dedup();
            most
        };
        let takers = [INSIDE, OUTSIDE].map(|zone| most(&self.ingress, zone));
        let senders = [INSIDE, OUTSIDE].map(|zone| most(&self.egress, zone));
        let mut effects: BTreeMap<(bool, usize, SetId), Vec<SetId>> = BTreeMap::new();
        let mut ids: BTreeMap<Vec<SetId>, u32> = BTreeMap::new();
        let mut effect = |is_sender: bool, zone: usize, set: SetId| {
            let others = if is_sender { &takers } else { &senders };
            let effect = effects.entry((is_sender, zone, set)).or_insert_with(|| {
                let others = others[zone].iter();
                others.map(|other| self.sets.and(set, *other)).collect()
            });
            let next = number(ids.len());
            *ids.entry(effect.clone()).or_insert(next)
        };
        let mut first: BTreeMap<_, u32> = BTreeMap::new();
        let mut twins = Vec::new();
        for class in 0..self.zones.len() {
            let (sends, takes) = (self.egress[class].most, self.ingress[class].most);
            let key = (
                self.zones[class],
                [INSIDE, OUTSIDE].map(|zone| effect(true, zone, sends[zone])),
                [INSIDE, OUTSIDE].map(|zone| effect(false, zone, takes[zone])),
                &self.from[class],
                &self.to[class],
            );
            twins.push(*first.entry(key).or_insert(number(class)));
        }
        twins
    }
}

/// Works out the rows of classes.
struct Rows<'r, 'a> {
    judge: &'r Judge<'r, 'a>,
    zones: &'r [usize],
    /// For each rule the classes that its peers match.
    matched: Vec<Rc<Matched>>,
    /// Classes that have ports of names in use.
    with_ports: Vec<u32>,
}

impl<'r, 'a> Rows<'r, 'a> {
    fn new(judge: &'r Judge<'r, 'a>, ends: &'r Ends<'a>, zones: &'r [usize]) -> Self {
        let rules: &Rules<'_> = judge.rules;
        let mut of_tests: Vec<Vec<u32>> = vec![Vec::new(); rules.tests.len()];
        let mut with_ports = Vec::new();
        let mut sizes = [0; 2];
        for (class, zone) in ends.classes.iter().zip(zones) {
            let id = number(sizes[INSIDE] + sizes[OUTSIDE]);
            for test in &class.signature.meets {
                of_tests[*test as usize].push(id);
            }
            if !class.signature.ports.is_empty() {
                with_ports.push(id);
            }
            sizes[*zone] += 1;
        }
        let mut known: BTreeMap<&[u32], Rc<Matched>> = BTreeMap::new();
        let matched = rules.all.iter().map(|placed| {
            let matched = known.entry(&placed.peers).or_insert_with(|| {
                let tests = placed.peers.iter();
                let mut all: Vec<u32> = tests
                    .flat_map(|t| &of_tests[*t as usize])
                    .copied()
                    .collect();
                all.sort_unstable();
                all.dedup();
                Rc::new(Matched::of(all, zones, sizes))
            });
            Rc::clone(matched)
        });
        Rows {
            matched: matched.collect(),
            judge,
            zones,
            with_ports,
        }
    }

    /// The rules of a class for a direction that can match, given its own address.
    fn rules(&self, class: usize, direction: Direction) -> Vec<u32> {
        let rules = self.judge.rules;
        let signature = &self.judge.classes[class].signature;
        let of_policies = signature.policies.iter();
        let of_policies = of_policies.map(|policy| &rules.of_policies[*policy as usize]);
        let of_profiles = signature.profiles.iter();
        let of_profiles = of_profiles.filter_map(|name| rules.of_profiles.get(name));
        let ranges = of_policies.chain(of_profiles);
        let mut all: Vec<u32> = ranges.flat_map(Clone::clone).map(number).collect();
        all.retain(|rule| {
            let placed = &rules.all[*rule as usize];
            let own = placed.own;
            placed.direction == direction
                && own.is_none_or(|own| signature.meets.binary_search(&own).is_ok())
        });
        all.sort_unstable();
        all.dedup();
        all
    }

    fn row(&self, class: usize, direction: Direction) -> Row {
        if !self.judge.classes[class].signature.is_endpoint {
            return Row {
                most: [Sets::ALL; 2],
                others: Vec::new(),
            };
        }
        let rules = self.rules(class, direction);
        let usual = [INSIDE, OUTSIDE].map(|zone| {
            let inverted = |rule: &&u32| self.matched[**rule as usize].inverted[zone];
            rules.iter().filter(inverted).copied().collect::<Vec<u32>>()
        });
        let mut turned: Vec<(u32, u32)> = Vec::new();
        for rule in &rules {
            let listed = self.matched[*rule as usize].listed.iter();
            turned.extend(listed.map(|class| (*class, *rule)));
        }
        // The names of the peer's ports count where a rule names ports at its end.
        let end = usize::from(direction == Direction::Egress);
        let named = rules
            .iter()
            .any(|rule| self.judge.rules.all[*rule as usize].names[end]);
        let mut classes: Vec<u32> = turned.iter().map(|(class, _)| *class).collect();
        if named {
            classes.extend(&self.with_ports);
        }
        classes.sort_unstable();
        classes.dedup();
        turned.sort_unstable();
        let most = [INSIDE, OUTSIDE].map(|zone| {
            let usual_peer = |peer: &usize| {
                self.zones[*peer] == zone && classes.binary_search(&number(*peer)).is_err()
            };
            let peer = (0..self.zones.len()).find(usual_peer);
            let allowed = |peer| self.judge.allowed(class, peer, direction, &usual[zone]);
            peer.map_or(Sets::NONE, allowed)
        });
        let mut others = Vec::new();
        for peer in classes {
            let zone = self.zones[peer as usize];
            let from = turned.partition_point(|(class, _)| *class < peer);
            let to = turned.partition_point(|(class, _)| *class <= peer);
            let turned = turned.get(from..to).unwrap_or_default();
            let mut relevant = usual[zone].clone();
            for (_, rule) in turned {
                match relevant.binary_search(rule) {
                    Ok(at) => drop(relevant.remove(at)),
                    Err(at) => relevant.insert(at, *rule),
                }
            }
            let set = self
                .judge
                .allowed(class, peer as usize, direction, &relevant);
            if set != most[zone] {
                others.push((peer, set));
            }
        }
        Row { most, others }
    }
}

impl Matched {
    fn of(all: Vec<u32>, zones: &[usize], sizes: [usize; 2]) -> Self {
        let mut counts = [0; 2];
        for class in &all {
            counts[zones[*class as usize]] += 1;
        }
        let inverted = [INSIDE, OUTSIDE].map(|zone| counts[zone] * 2 > sizes[zone]);
        if inverted == [false; 2] {
            return Matched {
                inverted,
                listed: all,
            };
        }
        let mut matching = all.into_iter().peekable();
        let listed = (0..zones.len()).map(number).filter(|class| {
            let matches = matching.next_if_eq(class).is_some();
            matches != inverted[zones[*class as usize]]
        });
        Matched {
            inverted,
            listed: listed.collect(),
        }
    }
}
