//! Random policies and changes: the maps say what the tables say, and what is in force stays until the halves change.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use palisade_engine::{Engine, EngineOptions};
use palisade_generators::lowered::ModelWorld;
use palisade_generators::{Dice, cases, seeded_cases};
use palisade_model::{Direction, L4, PortRange, Prefix, Str, Update};
use palisade_tables::{DirectionVerdict, IdentityId, Packet, Tables, Verdict};

use super::*;

mod room;

/// Room for every world.
const ROOM: Room = Room {
    slots: 256,
    sets: 1_024,
    rows: 65_536,
    classes: 4_096,
    ports: 65_536,
    ranges: 16_384,
    counters: 8_192,
    prefixes: 4_096,
};

/// Where no flow to other hosts is proven.
const NO_NETWORKS: &[Prefix] = &[];

/// Maps as the writes leave them, read as the programs read them. It shares no code with the projection.
#[derive(Clone, Debug, Default, PartialEq)]
struct Maps {
    half: usize,
    slots: BTreeMap<u16, SlotRow>,
    endpoints: BTreeMap<IpAddr, u16>,
    defaults: BTreeMap<u32, [u32; 2]>,
    rows: BTreeMap<(u32, u32), [u32; 2]>,
    classes: BTreeMap<u32, ClassWords>,
    ranges: BTreeMap<u32, u32>,
    counters: BTreeSet<u32>,
    prefixes: BTreeMap<Prefix, [Option<IdentityId>; 2]>,
    lengths: BTreeMap<usize, u8>,
    complete: [bool; 2],
}

/// The words of a flow whose ends are not both known.
const UNKNOWN: [Option<Word>; 2] = [Some(Word::Pass); 2];

impl Maps {
    fn apply(&mut self, write: &MapWrite) {
        match write {
            MapWrite::Counter { number, .. } => assert!(self.counters.insert(number.0)),
            MapWrite::FreeCounter { number, .. } => assert!(self.counters.remove(&number.0)),
            MapWrite::Class {
                number,
                content,
                first_range,
            } => {
                let ranges: usize = content.iter().map(|words| words.ranges().count()).sum();
                for at in *first_range..first_range + ranges as u32 {
                    assert_eq!(self.ranges.insert(at, *number), None, "a range of another");
                }
                let former = self.classes.insert(*number, (**content).clone());
                assert_eq!(former, None, "class {number} is in use");
            }
            MapWrite::FreeClass { number, .. } => {
                assert!(self.classes.remove(number).is_some());
                self.ranges.retain(|_, class| class != number);
                let in_force = self.half;
                let defaults = self.defaults.values().map(|classes| classes[in_force]);
                let rows = self.rows.values().map(|classes| classes[in_force]);
                assert!(
                    !defaults.chain(rows).any(|class| class == *number),
                    "class {number} is freed in use"
                );
            }
            MapWrite::Default { set, classes } => {
                self.defaults.insert(*set, *classes);
            }
            MapWrite::Row {
                set,
                identity,
                classes,
            } => {
                let key = (*set, identity.0);
                match classes {
                    Some(classes) => self.rows.insert(key, *classes),
                    None => self.rows.remove(&key),
                };
            }
            MapWrite::Slot(row) => {
                self.slots.insert(row.number, row.clone());
                self.endpoints.insert(row.address, row.number);
            }
            MapWrite::FreeSlot { number, address } => {
                assert!(self.slots.remove(number).is_some());
                self.endpoints.remove(address);
            }
            MapWrite::Prefix { prefix, identities } => {
                match identities {
                    Some(halves) => self.prefixes.insert(*prefix, *halves),
                    None => self.prefixes.remove(prefix),
                };
            }
            MapWrite::PrefixLength { place, length } => {
                let former = match length {
                    Some(length) => self.lengths.insert(*place, *length),
                    None => self.lengths.remove(place),
                };
                assert_eq!(former.is_some(), length.is_none(), "place {place}");
            }
            MapWrite::Networks { complete } => self.complete = *complete,
        }
    }

    /// The identity of an address of other hosts.
    fn outside(&self, address: IpAddr) -> Option<u32> {
        let containing = self.prefixes.iter().filter_map(|(prefix, halves)| {
            let length = mapped_length(*prefix);
            let is_tried = length == 128 || self.lengths.values().any(|known| *known == length);
            let identity = halves[self.half]?;
            (is_tried && prefix.contains(address)).then_some((prefix.length(), identity.0))
        });
        let longest = containing.max_by_key(|(length, _)| *length);
        longest
            .filter(|_| self.complete[self.half])
            .map(|(_, identity)| identity)
    }

    fn slot(&self, address: IpAddr) -> Option<&SlotRow> {
        self.slots.get(self.endpoints.get(&address)?)
    }

    fn word(&self, set: u32, identity: u32, protocol: FastProtocol, port: u16) -> Word {
        let row = self.rows.get(&(set, identity)).or(self.defaults.get(&set));
        let class = row.map_or(0, |classes| classes[self.half]);
        let content = self.classes.get(&class);
        content.map_or(Word::Pass, |content| {
            let words = &content[protocol as usize];
            let row = words
                .rows
                .iter()
                .find(|row| (row.ports.first..=row.ports.last).contains(&port));
            row.map_or(words.default, |row| row.word)
        })
    }

    fn words(
        &self,
        from: IpAddr,
        to: IpAddr,
        protocol: FastProtocol,
        port: u16,
    ) -> [Option<Word>; 2] {
        let half = self.half;
        let identity = |address| match self.slot(address) {
            Some(slot) => Some(slot.identities[half]),
            None => self.outside(address),
        };
        let (Some(sender), Some(receiver)) = (identity(from), identity(to)) else {
            return UNKNOWN;
        };
        let [from, to] = [from, to].map(|address| self.slot(address));
        if from.is_none() && to.is_none() {
            return UNKNOWN;
        }
        [
            from.map(|slot| self.word(slot.sets[half][0], receiver, protocol, port)),
            to.map(|slot| self.word(slot.sets[half][1], sender, protocol, port)),
        ]
    }

    /// What may be seen of the half in force.
    fn verdicts(&self, trials: &[Trial]) -> Vec<[bool; 2]> {
        let verdicts = trials.iter().map(|trial| {
            // A slot that is new has no flow that could be denied.
            let is_new = [trial.from, trial.to].into_iter().any(|address| {
                let slot = self.slot(address);
                slot.is_some_and(|slot| {
                    slot.identities[self.half] == 0 && slot.sets[self.half] == [0; 2]
                })
            });
            let words = self.words(trial.from, trial.to, trial.protocol, trial.port);
            let mut known = words.iter().flatten();
            let is_allowed = known.all(|word| matches!(word, Word::Allow(_)));
            let mut known = words.iter().flatten();
            let is_denied = known.any(|word| matches!(word, Word::Deny(_)));
            [is_allowed, !is_new && is_denied]
        });
        verdicts.collect()
    }
}

/// The first packet of a flow between two workloads.
struct Trial {
    from: IpAddr,
    to: IpAddr,
    protocol: FastProtocol,
    port: u16,
    packet: Packet,
}

/// The interface to other hosts.
const UPLINK: &str = "eth0";

/// Addresses of other hosts: the first and the last of prefixes of the tables.
fn outside(tables: &Tables) -> Vec<(Str, IpAddr)> {
    let workloads: BTreeSet<IpAddr> = tables
        .points
        .keys()
        .filter_map(|point| Some(point.workload()?.1))
        .collect();
    let prefixes = tables.addresses.keys();
    let ends = prefixes.flat_map(|prefix| [prefix.address(), prefix.last()]);
    let addresses = ends.filter(|address| !workloads.contains(address));
    addresses
        .map(|address| (Str::from(UPLINK), address))
        .collect()
}

/// Networks of other hosts: none, some around prefixes of the tables, or all there are.
fn draw_networks(dice: &mut Dice, tables: &Tables) -> Vec<Prefix> {
    let prefixes: Vec<Prefix> = tables.addresses.keys().collect();
    match dice.below(3) {
        0 => Vec::new(),
        1 if !prefixes.is_empty() => {
            let some = (0..=dice.below(3)).map(|_| {
                let prefix = *dice.pick(&prefixes);
                let length = prefix.length().saturating_sub(dice.below(12) as u8);
                Prefix::new(prefix.address(), length)
            });
            some.collect()
        }
        _ => Vec::from([Prefix::ALL_V4, Prefix::ALL_V6]),
    }
}

impl Trial {
    fn draw(dice: &mut Dice, ends: &[(Str, IpAddr)]) -> Option<Trial> {
        let [from, to] = [dice.pick(ends).clone(), dice.pick(ends).clone()];
        let is_v4 = from.1.is_ipv4();
        if is_v4 != to.1.is_ipv4() || from.0 == to.0 {
            return None;
        }
        let icmp = if is_v4 {
            FastProtocol::Icmp
        } else {
            FastProtocol::Icmpv6
        };
        let protocol = *dice.pick(&[FastProtocol::Tcp, FastProtocol::Udp, icmp]);
        // Ports that rules name, or any.
        let destination = *dice.pick(&[53, 80, 81, 443, 1_024, 5_432, 8_080, 65_535]);
        let source = *dice.pick(&[1_024, 40_000]);
        let kind = if is_v4 { 8 } else { 128 };
        let (l4, port) = match protocol {
            FastProtocol::Tcp | FastProtocol::Udp => {
                let ports = L4::Ports {
                    source,
                    destination,
                };
                (ports, destination)
            }
            _ => (
                L4::Icmp { kind, code: 0 },
                palisade_tables::icmp_key(kind, 0),
            ),
        };
        let packet = Packet {
            input_interface: Some(from.0),
            output_interface: Some(to.0),
            source: from.1,
            destination: to.1,
            pre_dnat: None,
            protocol: protocol.protocol(),
            l4,
        };
        Some(Trial {
            from: from.1,
            to: to.1,
            protocol,
            port,
            packet,
        })
    }

    /// What tables say in a direction.
    fn expected(&self, tables: &Tables, direction: Direction) -> Expected {
        let DirectionVerdict::Evaluated(evaluation) =
            tables.judge_direction(&self.packet, direction)
        else {
            return Expected::Nothing;
        };
        let program = tables.programs.get(&evaluation.class);
        let map = program.and_then(|program| program.protocol(self.packet.protocol));
        let cells = map.map(|map| map.get(self.port));
        if let Some(cells) = cells.filter(|cells| cells.as_constant().is_none()) {
            let is_denied = cells.runs().all(|(_, cell)| cell.verdict == Verdict::Deny);
            return if is_denied {
                Expected::Denied
            } else {
                Expected::Nothing
            };
        }
        let cell = evaluation.cell;
        if cell.verdict == Verdict::Deny {
            return Expected::Denied;
        }
        let is_reported =
            cell.log.is_some() || cell.audit_report().is_some() || cell.redirect.is_some();
        if is_reported {
            Expected::Nothing
        } else {
            Expected::Allowed
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Allowed,
    Denied,
    Nothing,
}

fn meaning(word: Word) -> Expected {
    match word {
        Word::Allow(_) => Expected::Allowed,
        Word::Deny(_) => Expected::Denied,
        Word::Pass => Expected::Nothing,
    }
}

/// Workloads whose address no other has.
fn workloads(tables: &Tables) -> Vec<(Str, IpAddr)> {
    let mut interfaces: BTreeMap<IpAddr, BTreeSet<Str>> = BTreeMap::new();
    for (interface, address) in tables.points.keys().filter_map(|point| point.workload()) {
        interfaces
            .entry(address)
            .or_default()
            .insert(interface.clone());
    }
    let single = interfaces
        .into_iter()
        .filter(|(_, interfaces)| interfaces.len() == 1);
    single
        .filter_map(|(address, interfaces)| Some((interfaces.into_iter().next()?, address)))
        .collect()
}

/// Compares maps and projection with tables; the numbers of directions that are proven, that are not, and that are judged
/// on another host.
fn compare(
    about: &str,
    tables: &Tables,
    projection: &Projection,
    maps: &Maps,
    trials: &[Trial],
) -> [u64; 3] {
    let mut counts = [0; 3];
    for trial in trials {
        let words = maps.words(trial.from, trial.to, trial.protocol, trial.port);
        let expected_words = projection.words(trial.from, trial.to, trial.protocol, trial.port);
        assert_eq!(
            expected_words.unwrap_or(UNKNOWN),
            words,
            "{about}: {:?}",
            trial.packet
        );
        let other_end = [trial.from, trial.to]
            .into_iter()
            .find(|address| !projection.slots().any(|slot| slot.address == *address));
        let has_none = tables.judges_host() || projection.shortage().prefixes > 0;
        if other_end.is_some_and(|address| has_none || !projection.is_known(address)) {
            assert_eq!(words, UNKNOWN, "{about}: {:?}", trial.packet);
            continue;
        }
        for (word, direction) in words
            .into_iter()
            .zip([Direction::Egress, Direction::Ingress])
        {
            let Some(word) = word else {
                counts[2] += 1;
                continue;
            };
            let expected = trial.expected(tables, direction);
            assert_eq!(
                meaning(word),
                expected,
                "{about}, {direction:?}: {:?}",
                trial.packet
            );
            counts[usize::from(expected != Expected::Allowed)] += 1;
        }
    }
    counts
}

#[test]
fn the_maps_say_what_the_tables_say_and_change_at_once() {
    let mut counts = [0; 3];
    let mut writes_seen = 0;
    for (seed, case) in seeded_cases(1, cases(300)) {
        let world = ModelWorld::generate(seed, case, 0);
        let mut engine = Engine::new(EngineOptions::default());
        let mut maps = Maps::default();
        let mut dice = Dice::new(seed, case);
        let mut all = Engine::new(EngineOptions::default());
        let _ = all.apply(world.state.objects().map(Update::Upsert));
        let networks = draw_networks(&mut dice, all.tables());
        let mut projection = Projection::new(ROOM, 1, &networks);
        let objects: Vec<_> = world.state.objects().collect();
        // All objects, then some removed and added again, in batches.
        let mut batches: Vec<Vec<Update>> =
            Vec::from([objects.iter().cloned().map(Update::Upsert).collect()]);
        for _ in 0..6 {
            let some = (0..=dice.below(3)).map(|_| dice.pick(&objects).clone());
            let some: Vec<_> = some.collect();
            batches.push(
                some.iter()
                    .map(|object| Update::Delete(object.key()))
                    .collect(),
            );
            if dice.below(2) == 0 {
                batches.push(some.into_iter().map(Update::Upsert).collect());
            }
        }
        for (step, batch) in batches.into_iter().enumerate() {
            let about = format!("seed {seed}, case {case}, step {step}");
            let before = engine.tables().clone();
            let delta = engine.apply(batch);
            let tables = engine.tables();
            let mut known = workloads(tables);
            known.extend(workloads(&before));
            let others = outside(tables);
            if !others.is_empty() {
                known.extend((0..known.len()).map(|_| dice.pick(&others).clone()));
            }
            let trials: Vec<Trial> = (0..40)
                .filter(|_| !known.is_empty())
                .filter_map(|_| Trial::draw(&mut dice, &known))
                .collect();
            let is_whole = step == 0 || dice.below(8) == 0;
            let writes = projection.update(tables, (!is_whole).then_some(&delta));
            let seen = maps.verdicts(&trials);
            let mut freed = BTreeSet::new();
            for write in writes.iter().flatten() {
                maps.apply(write);
                writes_seen += 1;
                if let MapWrite::FreeSlot { address, .. } = write {
                    freed.insert(*address);
                }
                let now = maps.verdicts(&trials);
                for (trial, (before, now)) in trials.iter().zip(seen.iter().zip(now)) {
                    // An address that moves is of nobody for a moment, and one that was a workload's is one of other
                    // hosts when its slot is free.
                    let ends = [trial.from, trial.to];
                    let is_freed = ends.iter().any(|address| freed.contains(address));
                    assert!(
                        *before == now || now == [false; 2] || is_freed,
                        "{about}: {write:?} changes {:?} {before:?} {now:?}",
                        trial.packet
                    );
                }
            }
            maps.half = projection.half();
            assert_eq!(listed(&projection), without_empty(&maps), "{about}");
            let here: Vec<Trial> = trials
                .into_iter()
                .filter(|trial| {
                    let known = workloads(tables);
                    let has = |interface: &Option<Str>, address| {
                        // An address that was a workload's is one of this host for another update.
                        let is_outside = interface.as_deref() == Some(UPLINK)
                            && projection.slot(address).is_none();
                        is_outside
                            || known.iter().any(|(name, known)| {
                                Some(name) == interface.as_ref() && *known == address
                            })
                    };
                    has(&trial.packet.input_interface, trial.from)
                        && has(&trial.packet.output_interface, trial.to)
                })
                .collect();
            let found = compare(&about, tables, &projection, &maps, &here);
            for (sum, count) in counts.iter_mut().zip(found) {
                *sum += count;
            }
        }
        check_end(
            &mut projection,
            &mut maps,
            &format!("seed {seed}, case {case}"),
        );
    }
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    assert!(writes_seen > 100, "{writes_seen} writes");
}

/// The maps of a listing.
fn listed(projection: &Projection) -> Maps {
    let mut maps = Maps {
        half: projection.half(),
        ..Maps::default()
    };
    for write in projection.listing() {
        maps.apply(&write);
    }
    without_empty(&maps)
}

/// The maps without sets that pass everything: those that are free have such a row still.
fn without_empty(maps: &Maps) -> Maps {
    let mut maps = maps.clone();
    maps.defaults.retain(|_, classes| *classes != [0; 2]);
    maps
}

#[test]
fn what_is_proven_is_what_both_ends_allow() {
    let mut proven_count = 0;
    for (seed, case) in seeded_cases(1, cases(60)) {
        let mut dice = Dice::new(seed, case);
        let mut draw = || {
            let mut rows: Vec<PortRow> = Vec::new();
            let mut next = 0_u32;
            while rows.len() < 6 {
                let first = next + dice.below(3) as u32 * 9_000;
                let last = first + [0, 1, 12_000][dice.below(3)];
                let last = if dice.below(8) == 0 { 65_535 } else { last };
                let Ok(last) = u16::try_from(last) else {
                    break;
                };
                let word = draw_word(&mut dice);
                let first = first as u16;
                rows.push(PortRow {
                    ports: PortRange { first, last },
                    word,
                });
                next = u32::from(last) + 1;
                if next > 65_535 {
                    break;
                }
            }
            ProtocolWords {
                default: draw_word(&mut dice),
                rows,
            }
        };
        let ends = [draw(), draw()];
        let proven = proven_ports(&ends[0], &ends[1]);
        proven_count += proven.len();
        for port in 0..=u16::MAX {
            let words = [ends[0].word(port), ends[1].word(port)];
            let expected = match words {
                [Word::Allow(egress), Word::Allow(ingress)] => Some([egress, ingress]),
                _ => None,
            };
            let mut found = proven.iter().filter(|row| row.ports.contains(port));
            let row = found.next();
            assert_eq!(row.map(|row| row.counters), expected, "{ends:?} {port}");
            assert_eq!(found.next(), None, "{ends:?} {port}");
        }
    }
    assert!(proven_count > 60, "{proven_count}");
}

fn draw_word(dice: &mut Dice) -> Word {
    let counter = CounterId(dice.below(2) as u32);
    match dice.below(4) {
        0 => Word::Pass,
        1 => Word::Deny(counter),
        _ => Word::Allow(counter),
    }
}

/// Without policy nothing stays in the maps, after as many updates as it takes both halves.
fn check_end(projection: &mut Projection, maps: &mut Maps, about: &String) {
    for _ in 0..4 {
        for write in projection.update(&Tables::default(), None).iter().flatten() {
            maps.apply(write);
        }
        maps.half = projection.half();
    }
    assert!(
        maps.slots.is_empty() && maps.endpoints.is_empty(),
        "{about}"
    );
    assert!(maps.rows.is_empty() && maps.classes.is_empty(), "{about}");
    assert!(
        maps.ranges.is_empty() && maps.counters.is_empty(),
        "{about}"
    );
    assert!(
        maps.defaults.values().all(|classes| *classes == [0; 2]),
        "{about}"
    );
    assert_eq!(projection.row_count(), 0, "{about}");
}

#[test]
fn a_slot_keeps_the_number_that_it_had() {
    let world = ModelWorld::generate(1, 0, 0);
    let mut engine = Engine::new(EngineOptions::default());
    let _ = engine.apply(world.state.objects().map(Update::Upsert));
    let known = workloads(engine.tables());
    let (interface, address) = known[0].clone();
    let mut projection = Projection::new(ROOM, 1, NO_NETWORKS);
    projection.reserve_slot(address, interface, 200);
    projection.reserve_slot(known[1].1, Str::from("another"), 1);
    let _ = projection.update(engine.tables(), None);
    assert_eq!(projection.slot(address).map(|row| row.number), Some(200));
    let numbers: BTreeSet<u16> = projection.slots().map(|row| row.number).collect();
    assert_eq!(
        numbers.len(),
        projection.slots().count(),
        "each has its own"
    );
    assert!(
        !numbers.contains(&1),
        "it may be used from the next update on"
    );
}

#[test]
fn what_does_not_change_is_not_written_and_who_comes_back_is_another() {
    let world = ModelWorld::generate(1, 0, 0);
    let mut engine = Engine::new(EngineOptions::default());
    let _ = engine.apply(world.state.objects().map(Update::Upsert));
    let tables = engine.tables();
    let (_, address) = workloads(tables)[0].clone();
    let mut projection = Projection::new(ROOM, 1, NO_NETWORKS);
    for _ in 0..3 {
        let _ = projection.update(tables, None);
    }
    assert_eq!(projection.update(tables, None), Some(Vec::new()));
    let number = projection.slot(address).unwrap().number;
    let mut without = tables.clone();
    without
        .points
        .retain(|point, _| point.workload().is_none_or(|(_, known)| known != address));
    let _ = projection.update(&without, None);
    let _ = projection.update(tables, None);
    assert_ne!(projection.slot(address).unwrap().number, number);
}

#[test]
fn what_has_no_room_passes_and_is_counted() {
    let mut short = 0;
    for (seed, case) in seeded_cases(2, cases(100)) {
        let world = ModelWorld::generate(seed, case, 0);
        let mut engine = Engine::new(EngineOptions::default());
        let _ = engine.apply(world.state.objects().map(Update::Upsert));
        let tables = engine.tables();
        let mut known = workloads(tables);
        if known.is_empty() {
            continue;
        }
        known.extend(outside(tables));
        let mut dice = Dice::new(seed, case);
        let mut room = ROOM;
        let field = dice.below(8);
        let fields = [
            &mut room.slots,
            &mut room.sets,
            &mut room.rows,
            &mut room.classes,
            &mut room.ports,
            &mut room.ranges,
            &mut room.counters,
            &mut room.prefixes,
        ];
        for (at, size) in fields.into_iter().enumerate() {
            if at == field {
                *size = 1 + dice.below(4) as u32;
            }
        }
        let networks = [Prefix::ALL_V4, Prefix::ALL_V6];
        let mut projection = Projection::new(room, 1, &networks);
        let mut maps = Maps::default();
        for write in projection.update(tables, None).iter().flatten() {
            maps.apply(write);
        }
        maps.half = projection.half();
        short += usize::from(!projection.shortage().is_empty());
        assert!(maps.rows.len() <= room.rows as usize);
        assert!(maps.prefixes.len() <= room.prefixes as usize);
        assert!(
            maps.slots
                .keys()
                .all(|number| u32::from(*number) < room.slots)
        );
        for _ in 0..40 {
            let Some(trial) = Trial::draw(&mut dice, &known) else {
                continue;
            };
            let words = maps.words(trial.from, trial.to, trial.protocol, trial.port);
            for (word, direction) in words
                .into_iter()
                .zip([Direction::Egress, Direction::Ingress])
            {
                let Some(word) = word else {
                    continue;
                };
                let expected = trial.expected(tables, direction);
                assert!(
                    meaning(word) == expected || word == Word::Pass,
                    "seed {seed}, case {case}, {room:?}: {word:?} {:?}",
                    trial.packet
                );
            }
        }
    }
    assert!(short > 5, "{short} worlds had no room");
}
