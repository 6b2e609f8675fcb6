//! The projection of whole tables.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;

use palisade_model::{Direction, PortRange, Protocol, Str};
use palisade_tables::{
    AuditComparison, Cell, ClassId, IdentityId, Point, PolicySetId, PortMap, Program, RuleId,
    SourcePortMap, Tables, Verdict,
};

/// The greatest number of ranges of one protocol of a class that programs search; of a class with more, packets of the
/// protocol pass.
pub const MAX_RANGES: usize = 64;

/// A protocol whose flows the fast path may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FastProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmpv6,
}

impl FastProtocol {
    /// All of them, in the order of the programs.
    pub const ALL: [FastProtocol; 4] = [
        FastProtocol::Tcp,
        FastProtocol::Udp,
        FastProtocol::Icmp,
        FastProtocol::Icmpv6,
    ];

    /// The protocol.
    pub fn protocol(self) -> Protocol {
        match self {
            FastProtocol::Tcp => Protocol::TCP,
            FastProtocol::Udp => Protocol::UDP,
            FastProtocol::Icmp => Protocol::ICMP,
            FastProtocol::Icmpv6 => Protocol::ICMPV6,
        }
    }
}

/// The number of a counter; what it counts is in [`Projection::counters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterId(pub u32);

/// What is said of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// It is not proven: nftables judges it.
    Pass,
    /// It is allowed, and counted here.
    Allow(CounterId),
}

/// The address of a workload of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRow {
    /// The interface of the workload.
    pub interface: Str,
    /// The address.
    pub address: IpAddr,
    /// Its identity.
    pub identity: IdentityId,
    /// The numbers of its policy sets for egress and ingress; 0 passes everything.
    pub sets: [u32; 2],
}

/// A class: for each of [`FastProtocol::ALL`] what is said where no row says anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassRow {
    /// The words.
    pub defaults: [Word; 4],
}

/// What a class says of a range of destination ports, or of ICMP types and codes (`icmp_key`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRow {
    /// The range.
    pub ports: PortRange,
    /// The word.
    pub word: Word,
}

/// What is counted: rules, and how the verdict compares with the one without audit.
pub type CounterContent = (Vec<RuleId>, Option<AuditComparison>);

/// What the fast path knows of tables. Numbers of sets and classes are its own, without gaps from 1 on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projection {
    /// The addresses of this host's workloads.
    pub slots: Vec<SlotRow>,
    /// The default class of each set, from set 1 on.
    pub default_classes: Vec<u32>,
    /// The class of an identity in a set, where it is not the default.
    pub classes: BTreeMap<(u32, IdentityId), u32>,
    /// The classes, from class 1 on.
    pub class_rows: Vec<ClassRow>,
    /// Rows of classes by protocol, sorted and disjoint.
    pub ports: BTreeMap<(u32, FastProtocol), Vec<PortRow>>,
    /// What is counted, from counter 1 on; 0 counts what has no rule.
    pub counters: Vec<CounterContent>,
}

impl Projection {
    /// The projection of tables.
    pub fn new(tables: &Tables) -> Self {
        let mut builder = Builder::default();
        let mut interfaces: BTreeMap<IpAddr, BTreeSet<Str>> = BTreeMap::new();
        for (interface, address) in tables.points.keys().filter_map(Point::workload) {
            let interfaces = interfaces.entry(address).or_default();
            interfaces.insert(interface.clone());
        }
        for (address, interfaces) in interfaces {
            // Of an address that two workloads have, nothing is proven.
            let mut interfaces = interfaces.into_iter();
            let (Some(interface), None) = (interfaces.next(), interfaces.next()) else {
                continue;
            };
            let sets = [Direction::Egress, Direction::Ingress].map(|direction| {
                let point = Point::of_workload(interface.clone(), address, direction);
                let set = tables.points.get(&point).copied();
                set.map_or(0, |set| builder.set(tables, set))
            });
            builder.projection.slots.push(SlotRow {
                identity: tables.identity(address),
                interface,
                address,
                sets,
            });
        }
        builder.add_classes(tables);
        builder.projection
    }

    /// What is said of the first packet of a flow in a direction of a slot, with the other end of this identity: as the
    /// programs find it.
    pub fn word(&self, set: u32, identity: IdentityId, protocol: FastProtocol, port: u16) -> Word {
        let index = |number: u32| (number as usize).checked_sub(1);
        let default = index(set).and_then(|set| self.default_classes.get(set));
        let class = self.classes.get(&(set, identity)).or(default);
        let Some(class) = class.copied() else {
            return Word::Pass;
        };
        let rows = self.ports.get(&(class, protocol));
        let mut rows = rows.into_iter().flatten();
        if let Some(row) = rows.find(|row| row.ports.contains(port)) {
            return row.word;
        }
        let row = index(class).and_then(|class| self.class_rows.get(class));
        row.map_or(Word::Pass, |row| row.defaults[protocol as usize])
    }
}

#[derive(Default)]
struct Builder {
    projection: Projection,
    sets: BTreeMap<PolicySetId, u32>,
    classes: BTreeMap<ClassId, u32>,
    counters: BTreeMap<CounterContent, CounterId>,
}

impl Builder {
    /// The number of a set, whose default is added.
    fn set(&mut self, tables: &Tables, set: PolicySetId) -> u32 {
        if let Some(number) = self.sets.get(&set) {
            return *number;
        }
        let default = tables.sets.get(&set).map(|set| set.default);
        let class = default.map_or(0, |class| self.class(tables, class));
        self.projection.default_classes.push(class);
        let number = to_u32(self.projection.default_classes.len());
        self.sets.insert(set, number);
        number
    }

    /// Adds the classes of the workloads' identities in the sets.
    fn add_classes(&mut self, tables: &Tables) {
        let slots = self.projection.slots.iter();
        let identities: BTreeSet<IdentityId> = slots.map(|slot| slot.identity).collect();
        for (set, number) in self.sets.clone() {
            for identity in &identities {
                if let Some(class) = tables.classes.get(&(set, *identity)) {
                    let class = self.class(tables, *class);
                    self.projection.classes.insert((number, *identity), class);
                }
            }
        }
    }

    /// The number of a class, which is added; 0 if it has no program.
    fn class(&mut self, tables: &Tables, class: ClassId) -> u32 {
        if let Some(number) = self.classes.get(&class) {
            return *number;
        }
        let Some(program) = tables.programs.get(&class) else {
            return 0;
        };
        let number = to_u32(self.projection.class_rows.len() + 1);
        self.classes.insert(class, number);
        let defaults = FastProtocol::ALL.map(|protocol| self.add_rows(number, program, protocol));
        self.projection.class_rows.push(ClassRow { defaults });
        number
    }

    /// Adds the rows of a protocol of a class; what is said where none says anything.
    fn add_rows(&mut self, class: u32, program: &Program, protocol: FastProtocol) -> Word {
        let Some(map) = program.protocol(protocol.protocol()) else {
            return self.word(program.default());
        };
        let ranges = map.entries().iter().map(|(ports, _)| ports);
        if ranges.filter(|ports| ports.first < ports.last).count() > MAX_RANGES {
            return Word::Pass;
        }
        let default = self.constant_word(map.default());
        let rows = map.entries().iter().map(|(ports, cells)| PortRow {
            ports: *ports,
            word: self.constant_word(cells),
        });
        let rows: Vec<PortRow> = rows.collect();
        if !rows.is_empty() {
            self.projection.ports.insert((class, protocol), rows);
        }
        default
    }

    /// What is said of a destination port: what depends on the source port passes.
    fn constant_word(&mut self, cells: &SourcePortMap) -> Word {
        let cell = PortMap::as_constant(cells);
        cell.map_or(Word::Pass, |cell| self.word(cell))
    }

    /// What is said by a cell: what is denied, reported or read passes.
    fn word(&mut self, cell: &Cell) -> Word {
        let is_proven = cell.verdict == Verdict::Allow
            && cell.log.is_none()
            && cell.audit_report().is_none()
            && cell.redirect.is_none();
        if !is_proven {
            return Word::Pass;
        }
        let content = (
            cell.counted_rules().collect::<Vec<_>>(),
            cell.audit_comparison(),
        );
        if content == (Vec::new(), None) {
            return Word::Allow(CounterId(0));
        }
        if let Some(counter) = self.counters.get(&content) {
            return Word::Allow(*counter);
        }
        self.projection.counters.push(content.clone());
        let counter = CounterId(to_u32(self.projection.counters.len()));
        self.counters.insert(content, counter);
        Word::Allow(counter)
    }
}

/// A number of something that fits in memory.
fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_engine::{Engine, EngineOptions};
    use palisade_generators::Dice;
    use palisade_generators::lowered::ModelWorld;
    use palisade_generators::{cases, seeded_cases};
    use palisade_model::{L4, Update};
    use palisade_tables::{DirectionVerdict, Packet};

    /// The verdict of tables of the first packet of a flow between slots, and whether it owes a report or a reading.
    fn judge(tables: &Tables, packet: &Packet, direction: Direction) -> (bool, bool) {
        match tables.judge_direction(packet, direction) {
            DirectionVerdict::Evaluated(evaluation) => {
                let cell = evaluation.cell;
                let is_reported =
                    cell.log.is_some() || cell.audit_report().is_some() || cell.redirect.is_some();
                (cell.verdict == Verdict::Allow, is_reported)
            }
            other => (false, other != DirectionVerdict::NoPoint),
        }
    }

    /// The header of a flow: of the ports that rules name, or any.
    fn draw_header(dice: &mut Dice, protocol: FastProtocol) -> (L4, u16) {
        match protocol {
            FastProtocol::Tcp | FastProtocol::Udp => {
                let destination = *dice.pick(&[53, 80, 81, 443, 1_024, 5_432, 8_080, 65_535]);
                let source = *dice.pick(&[1_024, 40_000]);
                let ports = L4::Ports {
                    source,
                    destination,
                };
                (ports, destination)
            }
            FastProtocol::Icmp => (L4::Icmp { kind: 8, code: 0 }, 8 << 8),
            FastProtocol::Icmpv6 => (L4::Icmp { kind: 128, code: 0 }, 128 << 8),
        }
    }

    #[test]
    fn what_is_proven_is_allowed_and_what_is_allowed_without_a_report_is_proven() {
        let (mut proven, mut passed) = (0_u64, 0_u64);
        for (seed, case) in seeded_cases(1, cases(300)) {
            let world = ModelWorld::generate(seed, case, 0);
            let mut engine = Engine::new(EngineOptions::default());
            let _ = engine.apply(world.state.objects().map(Update::Upsert));
            let tables = engine.tables();
            let projection = Projection::new(tables);
            let mut dice = Dice::new(seed, case);
            let slots = &projection.slots;
            for _ in 0..40 {
                if slots.len() < 2 {
                    break;
                }
                let [from, to] = [dice.pick(slots).clone(), dice.pick(slots).clone()];
                let is_v4 = from.address.is_ipv4();
                if is_v4 != to.address.is_ipv4() || from.interface == to.interface {
                    continue;
                }
                let icmp = if is_v4 {
                    FastProtocol::Icmp
                } else {
                    FastProtocol::Icmpv6
                };
                let protocol = *dice.pick(&[FastProtocol::Tcp, FastProtocol::Udp, icmp]);
                let (l4, port) = draw_header(&mut dice, protocol);
                let packet = Packet {
                    input_interface: Some(from.interface.clone()),
                    output_interface: Some(to.interface.clone()),
                    source: from.address,
                    destination: to.address,
                    pre_dnat: None,
                    protocol: protocol.protocol(),
                    l4,
                };
                let ends = [
                    (Direction::Egress, from.sets[0], to.identity),
                    (Direction::Ingress, to.sets[1], from.identity),
                ];
                for (direction, set, identity) in ends {
                    let word = projection.word(set, identity, protocol, port);
                    let (is_allowed, is_reported) = judge(tables, &packet, direction);
                    let depends = depends_on_source_port(tables, &packet, direction);
                    let expected = is_allowed && !is_reported && !depends;
                    assert_eq!(
                        word != Word::Pass,
                        expected,
                        "seed {seed}, case {case}: {packet:?}"
                    );
                    *(if expected { &mut proven } else { &mut passed }) += 1;
                }
            }
        }
        assert!(
            proven > 100 && passed > 100,
            "{proven} proven, {passed} passed"
        );
    }

    /// Whether other source ports have other cells.
    fn depends_on_source_port(tables: &Tables, packet: &Packet, direction: Direction) -> bool {
        let DirectionVerdict::Evaluated(evaluation) = tables.judge_direction(packet, direction)
        else {
            return false;
        };
        let L4::Ports { destination, .. } = packet.l4 else {
            return false;
        };
        let program = tables.programs.get(&evaluation.class);
        let map = program.and_then(|program| program.protocol(packet.protocol));
        map.is_some_and(|map| map.get(destination).as_constant().is_none())
    }
}
