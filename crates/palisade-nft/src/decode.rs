//! Decodes the kernel's content to decision tables, in the kernel's numbers.
//!
//! Anything that this layout could not have written (a changed rule, an unexpected element, a dangling
//! reference) is an error: then the whole table is rebuilt.

use crate::address_ranges::{AddressRanges, ValueRange};
mod host_points;

use crate::content::{ClassContent, ClassForm, class_content, stored_fingerprint};
use crate::host_chains;
use crate::names::{
    self, CLASS_BASE, CLASS_DEFAULT, FIRST_BASE, GENERATION, ICMP, ICMP_RANGE, IDENTITY_CLASS,
    IF_HAIRPIN, IF_OURS, LAST_VERDICT,
};
use crate::names::{
    CODE_VERDICT, DROP_VERDICT, PENDING_REVOCATION, PORT, PORT_RANGE, PROTO, SET_CLASS,
    number_from_bytes,
};
use crate::skeleton::{code_cell, generation_of, skeleton};
use crate::source_ports::{self, SourcePortChain};
use crate::{Config, Element, ElementKey, MapValue, NftSet, NftVerdict, Ruleset};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Direction, Family, NumberRange, Pass, Prefix, Protocol, Str};
use palisade_tables::{Cell, ClassId, IdentityId, Point, PolicySet, PortMap, Program, RuleId};
use palisade_tables::{PolicySetId, SourcePortMap, Tables};

use host_points::HostPointElement;
pub(crate) use host_points::canonical_host_points;

/// Rule numbers from here on stand for unknown rules found in the kernel.
pub(crate) const UNKNOWN_RULE: u32 = 1 << 31;

/// The decoded content, in the kernel's numbers.
#[derive(Debug)]
pub(crate) struct DecodedTable {
    /// The tables. Every cell of a program is credited to a placeholder rule number of its own.
    pub(crate) tables: Tables,
    /// The address ranges of each family.
    pub(crate) identity_ranges: [AddressRanges<IdentityId>; 2],
    /// The content of each class, fingerprint included.
    pub(crate) classes: BTreeMap<u32, ClassContent>,
    /// The bases of classes that have one.
    pub(crate) base_of_class: BTreeMap<u32, u32>,
    /// The content of each base.
    pub(crate) bases: BTreeMap<u32, ClassContent>,
    /// The program of each base, credited as the tables' programs are.
    pub(crate) base_programs: BTreeMap<u32, Program>,
    /// The codes of the source-port chains of each class and base, ascending.
    pub(crate) source_port_codes: BTreeMap<u32, Vec<u32>>,
    /// (set, class) pairs without rows.
    pub(crate) unused_pairs: Vec<(u32, u32)>,
    /// The content of the sets of own addresses.
    pub(crate) own_addresses: BTreeSet<IpAddr>,
    /// The numbers of the places of named interfaces of the host.
    pub(crate) places: BTreeMap<Str, u32>,
    pub(crate) generation: u32,
    pub(crate) revocation_pending: bool,
}

/// Why the table must be rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeError(pub(crate) &'static str);

/// The generation that accepted flows are marked with, if it can be determined.
pub(crate) fn live_generation(config: &Config, ruleset: &Ruleset) -> Option<u32> {
    match ruleset.chains.get(GENERATION)?.rules.as_slice() {
        [rule] => generation_of(config, rule),
        _ => None,
    }
}

/// Decodes a table. Counts must be zero ([`Ruleset::without_counts`]).
pub(crate) fn decode(config: &Config, ruleset: &Ruleset) -> Result<DecodedTable, DecodeError> {
    let generation = live_generation(config, ruleset)
        .ok_or(DecodeError("the generation cannot be determined"))?;
    let mut fixed = skeleton(config, generation);
    let host_passes = host_chains::passes_of(&ruleset.chains);
    for pass in &host_passes {
        fixed.chains.extend(host_chains::chains(config, *pass));
    }
    let same = ruleset.comment == fixed.comment
        && ruleset.flags == fixed.flags
        && ruleset.foreign.is_empty()
        && ruleset.sets.keys().eq(fixed.sets.keys())
        && fixed
            .chains
            .iter()
            .all(|(name, chain)| ruleset.chains.get(name) == Some(chain));
    if !same || generation == 0 {
        return Err(DecodeError("the skeleton differs"));
    }
    let mut decoder = TableDecoder {
        observed: DecodedTable {
            tables: Tables {
                judge_host_traffic: config.judge_host_traffic,
                judge_hairpin: config.judge_hairpin,
                failsafe: config.failsafe.clone(),
                ..Tables::default()
            },
            identity_ranges: Default::default(),
            classes: BTreeMap::new(),
            base_of_class: BTreeMap::new(),
            bases: BTreeMap::new(),
            base_programs: BTreeMap::new(),
            source_port_codes: BTreeMap::new(),
            unused_pairs: Vec::new(),
            own_addresses: BTreeSet::new(),
            places: BTreeMap::new(),
            generation,
            revocation_pending: false,
        },
        hairpin_interfaces: BTreeSet::new(),
        pairs: BTreeSet::new(),
        ranges: Default::default(),
        places: BTreeMap::new(),
        any_places: BTreeSet::new(),
        host_points: Vec::new(),
        host_passes,
    };
    for (name, set) in &fixed.sets {
        let found = &ruleset.sets[name];
        decoder.decode_set(name, set, found)?;
    }
    for (name, chain) in &ruleset.chains {
        if fixed.chains.contains_key(name) {
            continue;
        }
        let SourcePortChain { class, code, .. } =
            SourcePortChain::parse(name).ok_or(DecodeError("a foreign chain"))?;
        let content = decoder.observed.classes.entry(class).or_default();
        content.chains.push((name.clone(), chain.clone()));
        let codes = decoder.observed.source_port_codes.entry(class).or_default();
        if !codes.contains(&code) {
            codes.push(code);
            codes.sort_unstable();
        }
    }
    decoder.finish(config)
}

pub(crate) struct TableDecoder {
    pub(crate) observed: DecodedTable,
    /// The interfaces by which a packet may arrive and leave again.
    hairpin_interfaces: BTreeSet<Str>,
    pairs: BTreeSet<(u32, u32)>,
    ranges: [Vec<ValueRange<IdentityId>>; 2],
    /// The numbers in the map of each pass.
    pub(crate) places: BTreeMap<(Str, Pass), u32>,
    /// The passes whose map has an entry for every other interface.
    pub(crate) any_places: BTreeSet<Pass>,
    pub(crate) host_points: Vec<HostPointElement>,
    /// The passes that have chains of host interfaces, in order.
    pub(crate) host_passes: Vec<Pass>,
}

/// The map's name as a static string.
fn static_map_name(set: &str) -> Option<&'static str> {
    names::COUNTED.into_iter().find(|name| *name == set)
}

fn read_bytes<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

pub(crate) fn read_mark(bytes: &[u8], at: usize) -> Option<u32> {
    number_from_bytes(bytes.get(at..at + 4)?)
}

pub(crate) fn parse_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(read_bytes::<4>(bytes, 0)?)),
        16 => Some(IpAddr::from(read_bytes::<16>(bytes, 0)?)),
        _ => None,
    }
}

pub(crate) fn parse_interface(bytes: &[u8]) -> Option<Str> {
    let name = core::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
    (!name.is_empty() && !name.contains('\0')).then(|| name.into())
}

pub(crate) fn element_number(element: &Element) -> Option<u32> {
    match &element.data {
        Some(MapValue::Value(bytes)) => number_from_bytes(bytes),
        _ => None,
    }
}

impl TableDecoder {
    fn decode_set(
        &mut self,
        name: &Str,
        fixed: &NftSet,
        found: &NftSet,
    ) -> Result<(), DecodeError> {
        if found.decl != fixed.decl {
            return Err(DecodeError("a set declaration differs"));
        }
        for (key, element) in &fixed.elements {
            if found.elements.get(key) != Some(element) {
                return Err(DecodeError("a constant element is missing"));
            }
        }
        let led = names::is_zero_prefixed(name);
        for (key, element) in &found.elements {
            let ends: [&[u8]; 2] = match key {
                ElementKey::Exact(bytes) => [bytes, bytes],
                ElementKey::Range(first, last) => [first, last],
                ElementKey::CatchAll => [&[], &[]],
            };
            if led
                && ends
                    .iter()
                    .any(|end| end.get(..4).is_some_and(|lead| lead != [0; 4]))
            {
                return Err(DecodeError("a key with a wrong first field"));
            }
            if !fixed.elements.contains_key(key) {
                self.decode_element(name, key, element)
                    .ok_or(DecodeError("an unexpected element"))?;
            }
        }
        Ok(())
    }

    fn decode_element(&mut self, name: &Str, key: &ElementKey, element: &Element) -> Option<()> {
        let tables = &mut self.observed.tables;
        if let Some(map) = static_map_name(name) {
            let bytes = match key {
                ElementKey::Exact(bytes) | ElementKey::Range(bytes, _) => bytes,
                ElementKey::CatchAll => return None,
            };
            let class = read_mark(bytes, 4)?;
            let content = self.observed.classes.entry(class).or_default();
            content.elements.insert((map, key.clone()), element.clone());
            return Some(());
        }
        if let Some(pass) = Pass::ALL
            .into_iter()
            .find(|pass| **name == *names::place_map(*pass))
        {
            return self.decode_place(pass, key, element_number(element)?);
        }
        if let Some(point) = HostPointElement::decode(name, key, element) {
            self.host_points.push(point);
            return Some(());
        }
        for family in Family::BOTH {
            let bytes = match key {
                ElementKey::Range(first, last) if **name == *names::network_map(family) => {
                    let number =
                        |bytes: &[u8]| Some(Prefix::host(parse_address(bytes)?).bounds().0);
                    let id = IdentityId(element_number(element)?);
                    let run = (number(first)?, number(last)?, id);
                    self.ranges[family as usize].push(run);
                    return Some(());
                }
                ElementKey::Exact(bytes) => bytes,
                _ => continue,
            };
            if **name == *names::host_map(family) {
                let id = IdentityId(element_number(element)?);
                tables
                    .addresses
                    .insert(Prefix::host(parse_address(bytes)?), id);
                return Some(());
            }
            if **name == *names::own_addresses_set(family) {
                self.observed.own_addresses.insert(parse_address(bytes)?);
                return Some(());
            }
            for direction in Direction::BOTH {
                let is_hairpin = **name == *names::hairpin_point_map(family, direction);
                if is_hairpin || **name == *names::point_map(family, direction) {
                    let of = match is_hairpin {
                        true => Point::of_hairpin,
                        false => Point::of_workload,
                    };
                    let point = of(
                        parse_interface(bytes.get(..16)?)?,
                        parse_address(bytes.get(16..)?)?,
                        direction,
                    );
                    tables
                        .points
                        .insert(point, PolicySetId(element_number(element)?));
                    return Some(());
                }
            }
        }
        let ElementKey::Exact(bytes) = key else {
            return None;
        };
        match &**name {
            IF_OURS => drop(tables.interfaces.insert(parse_interface(bytes)?)),
            IF_HAIRPIN => {
                let (name, again) = bytes.split_at_checked(16)?;
                (name == again).then_some(())?;
                self.hairpin_interfaces.insert(parse_interface(name)?);
            }
            PENDING_REVOCATION => {
                (number_from_bytes(bytes)? == 1).then_some(())?;
                self.observed.revocation_pending = true;
            }
            CLASS_BASE => {
                let (class, base) = (read_mark(bytes, 4)?, element_number(element)?);
                let content = self.observed.classes.entry(class).or_default();
                content
                    .elements
                    .insert((CLASS_BASE, key.clone()), element.clone());
                self.observed.base_of_class.insert(class, base);
            }
            IDENTITY_CLASS => {
                let row = (
                    PolicySetId(read_mark(bytes, 4)?),
                    IdentityId(read_mark(bytes, 8)?),
                );
                tables
                    .classes
                    .insert(row, ClassId(element_number(element)?));
            }
            SET_CLASS => {
                let (set, class) = (read_mark(bytes, 4)?, read_mark(bytes, 8)?);
                let value = element_number(element)?;
                if class == 0 {
                    let default = ClassId(value);
                    tables.sets.insert(PolicySetId(set), PolicySet { default });
                } else {
                    (class == value).then_some(())?;
                    self.pairs.insert((set, class));
                }
            }
            CODE_VERDICT | DROP_VERDICT => {
                let Some(MapValue::Verdict(NftVerdict::Goto(chain))) = &element.data else {
                    return None;
                };
                let chain = SourcePortChain::parse(chain)?;
                (read_mark(bytes, 4)? == chain.code && !chain.is_reply).then_some(())?;
                let content = self.observed.classes.entry(chain.class).or_default();
                let map = names::verdict_map(name)?;
                content.elements.insert((map, key.clone()), element.clone());
            }
            _ => return None,
        }
        Some(())
    }

    /// Checks that all references exist, and decodes the programs.
    fn finish(mut self, config: &Config) -> Result<DecodedTable, DecodeError> {
        for family in Family::BOTH {
            let runs = core::mem::take(&mut self.ranges[family as usize]);
            for (first, last, id) in &runs {
                let range = NumberRange::new(*first, *last);
                let range = range.ok_or(DecodeError("an empty range"))?;
                for prefix in range.prefixes(family) {
                    // Each range consists of prefixes with at least two addresses.
                    if prefix.is_host() {
                        return Err(DecodeError("a range that is not a union of prefixes"));
                    }
                    self.observed.tables.addresses.insert(prefix, *id);
                }
            }
            self.observed.identity_ranges[family as usize] = AddressRanges::from_ranges(runs)
                .ok_or(DecodeError("ranges that are not maximal"))?;
        }
        self.decode_host_points(config).ok_or(DecodeError(
            "points of host interfaces that are not consistent",
        ))?;
        self.decode_programs(config)?;
        let tables = &mut self.observed.tables;
        if !config.judge_hairpin && self.hairpin_interfaces != tables.interfaces {
            return Err(DecodeError("the interface set and the hairpin map differ"));
        }
        let mut used = BTreeSet::new();
        for ((set, _), class) in &tables.classes {
            if !tables.sets.contains_key(set) || !tables.programs.contains_key(class) {
                return Err(DecodeError("a row without set or class"));
            }
            used.insert((set.0, class.0));
        }
        let whole = tables
            .sets
            .values()
            .all(|set| tables.programs.contains_key(&set.default))
            && tables
                .points
                .values()
                .all(|set| tables.sets.contains_key(set))
            && used.is_subset(&self.pairs);
        if !whole {
            return Err(DecodeError("a dangling reference"));
        }
        self.observed.unused_pairs = self.pairs.difference(&used).copied().collect();
        Ok(self.observed)
    }

    /// Decodes the programs of bases, and of the classes that refer to them or are whole.
    fn decode_programs(&mut self, config: &Config) -> Result<(), DecodeError> {
        let observed = &mut self.observed;
        observed.bases = observed.classes.split_off(&FIRST_BASE);
        let used: BTreeSet<u32> = observed.base_of_class.values().copied().collect();
        if !used.iter().eq(observed.bases.keys()) {
            return Err(DecodeError("a missing or unreferenced base"));
        }
        let codes = |number| {
            observed
                .source_port_codes
                .get(&number)
                .map_or(&[][..], |codes| codes)
        };
        let mut bases: BTreeMap<u32, (Program, u32)> = BTreeMap::new();
        for (number, content) in &observed.bases {
            let of = decode_program(config, *number, content, codes(*number), None);
            bases.insert(
                *number,
                of.ok_or(DecodeError("a base that cannot be decoded"))?,
            );
        }
        for (class, content) in &observed.classes {
            let base = observed.base_of_class.get(class);
            let base = base.and_then(|number| Some((*number, bases.get(number)?)));
            let (program, _) = decode_program(config, *class, content, codes(*class), base)
                .ok_or(DecodeError("a class that cannot be decoded"))?;
            let programs = &mut observed.tables.programs;
            programs.insert(ClassId(*class), Arc::new(program));
        }
        let bases = bases.into_iter();
        observed.base_programs = bases.map(|(number, (of, _))| (number, of)).collect();
        Ok(())
    }
}

/// Decodes the program of a class or base, each cell credited to a number of its own, and returns the last
/// of these numbers. `base` is the class's base: its number, program and last rule number. `None` unless
/// encoding the program again gives the same elements and chains.
fn decode_program(
    config: &Config,
    class: u32,
    content: &ClassContent,
    codes: &[u32],
    base: Option<(u32, &(Program, u32))>,
) -> Option<(Program, u32)> {
    let mut next = base.map_or(UNKNOWN_RULE, |(_, (_, last))| *last);
    let mut cell = |code| {
        next += 1;
        let hits = [RuleId(next)].into();
        Some(Cell {
            hits,
            ..code_cell(code)?
        })
    };
    let mut residues: BTreeMap<u32, SourcePortMap> = BTreeMap::new();
    for (name, chain) in &content.chains {
        let SourcePortChain {
            code,
            is_reply,
            is_dropping,
            ..
        } = SourcePortChain::parse(name)?;
        // The others follow from it, which encoding the program again shows.
        if !is_reply && !is_dropping {
            residues.insert(code, source_ports::decode(config, &chain.rules, &mut cell)?);
        }
    }
    let mut values = |element: &Element| -> Option<SourcePortMap> {
        Some(match element_number(element)? {
            code @ 1..=LAST_VERDICT => PortMap::constant(cell(code)?),
            code => residues.get(&code)?.clone(),
        })
    };
    let mut defaults: BTreeMap<Protocol, SourcePortMap> = BTreeMap::new();
    let mut entries: BTreeMap<Protocol, BTreeMap<u16, (u16, SourcePortMap)>> = BTreeMap::new();
    let mut default = None;
    for ((map, key), element) in &content.elements {
        match (*map, key) {
            (CODE_VERDICT | DROP_VERDICT | CLASS_BASE, _) => {}
            (CLASS_DEFAULT, ElementKey::Exact(_)) => {
                default = Some(values(element)?.as_constant()?.clone())
            }
            (PROTO, ElementKey::Exact(bytes)) => {
                let [protocol] = read_bytes(bytes, 8)?;
                defaults.insert(Protocol(protocol), values(element)?);
            }
            (PORT | PORT_RANGE | ICMP | ICMP_RANGE, key) => {
                let (first, last) = match key {
                    ElementKey::Exact(bytes) => (bytes, bytes),
                    ElementKey::Range(first, last) => (first, last),
                    ElementKey::CatchAll => return None,
                };
                let [protocol] = read_bytes(first, 8)?;
                let number = |bytes: &[u8]| -> Option<u16> {
                    Some(match *map {
                        PORT | PORT_RANGE => u16::from_be_bytes(read_bytes(bytes, 12)?),
                        _ => u16::from_be_bytes([*bytes.get(12)?, *bytes.get(16)?]),
                    })
                };
                let (first, last) = (number(first)?, number(last)?);
                let of = entries.entry(Protocol(protocol)).or_default();
                let clash = of.insert(first, (last, values(element)?));
                (clash.is_none() && first <= last).then_some(())?;
            }
            _ => return None,
        }
    }
    if let Some((_, (base, _))) = base {
        // The class has no defaults of its own.
        (default.is_none() && defaults.is_empty()).then_some(())?;
        default = Some(base.default().clone());
        for (protocol, map) in base.protocols() {
            let of = match protocol.has_ports() || protocol.is_icmp() {
                true => map.default(),
                false => map.get(0),
            };
            defaults.insert(*protocol, of.clone());
            let entries = entries.entry(*protocol).or_default();
            for (range, values) in map.entries() {
                let clash = entries.insert(range.first, (range.last, values.clone()));
                clash.is_none().then_some(())?;
            }
        }
        for protocol in entries.keys() {
            let rest = || PortMap::constant(base.default().clone());
            defaults.entry(*protocol).or_insert_with(rest);
        }
    }
    let mut protocols = BTreeMap::new();
    for (protocol, default) in &defaults {
        let entries = entries.remove(protocol).unwrap_or_default();
        let mut segments = Vec::new();
        for (first, (last, values)) in entries {
            if first > 0 {
                segments.push((first - 1, default.clone()));
            }
            segments.push((last, values));
        }
        if segments.last().is_none_or(|(end, _)| *end < u16::MAX) {
            segments.push((u16::MAX, default.clone()));
        }
        protocols.insert(*protocol, PortMap::from_segments(segments)?);
    }
    let program = Program::new(protocols, default?);
    let mut codes = codes.iter().copied();
    let digest = stored_fingerprint(class, content).unwrap_or("");
    let form = match base {
        Some((number, (base, _))) => ClassForm::Refining(digest, number, base),
        None if class >= FIRST_BASE => ClassForm::Base,
        None => ClassForm::Whole(digest),
    };
    let mut again = class_content(config, class, &program, form, &mut || {
        codes.next().unwrap_or_default()
    });
    again.chains.sort_by(|a, b| a.0.cmp(&b.0));
    let mut chains = content.chains.clone();
    chains.sort_by(|a, b| a.0.cmp(&b.0));
    let same = again.elements == content.elements && again.chains == chains;
    (same && entries.is_empty()).then_some((program, next))
}
