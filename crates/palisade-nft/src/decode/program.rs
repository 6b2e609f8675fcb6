//! The program of a class or base, decoded from its elements and chains.
//!
//! Promises: `None` unless encoding the program again gives the same elements and chains.

use super::UNKNOWN_RULE;
use super::elements::{element_number, read_bytes};
use crate::content::{ClassContent, ClassForm, KnownNumbers, class_content, stored_fingerprint};
use crate::names::{
    CLASS_BASE, CLASS_DEFAULT, CODE_VERDICT, DROP_VERDICT, FIRST_BASE, ICMP, ICMP_RANGE,
    LAST_VERDICT, PORT, PORT_RANGE, PROTO, REDIRECT,
};
use crate::redirect_ports::parse_redirect_key;
use crate::skeleton::code_cell;
use crate::source_ports::{self, SourcePortChain};
use crate::{Config, Element, ElementKey};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{DomainPattern, PortRange, Protocol};
use palisade_tables::{Cell, DnsRules, PortMap, Program, RuleId, SourcePortMap, Verdict};

/// What the elements of a program say so far.
#[derive(Default)]
struct ProgramParts {
    default: Option<Cell>,
    defaults: BTreeMap<Protocol, SourcePortMap>,
    /// By protocol and first port or ICMP number: the last one, and the value.
    entries: BTreeMap<Protocol, BTreeMap<u16, (u16, SourcePortMap)>>,
}

/// The values of elements: each cell gets a rule number of its own.
struct CellValues {
    last_rule: u32,
    /// The functions of the source port, by code.
    by_code: BTreeMap<u32, SourcePortMap>,
}

/// Decodes the program of a class or base, each cell with a rule number of its own, and returns the last
/// of these numbers. `base` is the class's base: its number, program and last rule number. `None` unless
/// encoding the program again gives the same elements and chains.
pub(super) fn decode_program(
    config: &Config,
    class: u32,
    content: &ClassContent,
    numbers: KnownNumbers<'_>,
    base: Option<(u32, &(Program, u32))>,
) -> Option<(Program, u32)> {
    let mut values = CellValues {
        last_rule: base.map_or(UNKNOWN_RULE, |(_, (_, last))| *last),
        by_code: BTreeMap::new(),
    };
    values.decode_chains(config, content)?;
    let mut parts = ProgramParts::default();
    for ((map, key), element) in &content.elements {
        parts.add_element(map, key, || values.get(element))?;
    }
    if let Some((_, (base, _))) = base {
        parts.add_base(base)?;
    }
    let redirects = redirect_program(config, content)?;
    let program = parts.into_program()?.with_redirects(&redirects);
    let fingerprint = stored_fingerprint(class, content).unwrap_or("");
    let form = match base {
        Some((number, (base, _))) => ClassForm::Refining(fingerprint, number, base),
        None if class >= FIRST_BASE => ClassForm::Base,
        None => ClassForm::Whole(fingerprint),
    };
    is_encoding(config, class, content, &program, numbers, form)
        .then_some((program, values.last_rule))
}

impl CellValues {
    fn cell(&mut self, code: u32) -> Option<Cell> {
        self.last_rule += 1;
        let causes = [RuleId(self.last_rule)].into();
        Some(Cell {
            causes,
            ..code_cell(code)?
        })
    }

    fn decode_chains(&mut self, config: &Config, content: &ClassContent) -> Option<()> {
        for (name, chain) in &content.chains {
            let SourcePortChain {
                code,
                is_reply,
                is_dropping,
                ..
            } = SourcePortChain::parse(name)?;
            // The others follow from it, which encoding the program again shows.
            if !is_reply && !is_dropping {
                let rules = &chain.rules;
                let values = source_ports::decode(config, rules, &mut |code| self.cell(code))?;
                self.by_code.insert(code, values);
            }
        }
        Some(())
    }

    fn get(&mut self, element: &Element) -> Option<SourcePortMap> {
        Some(match element_number(element)? {
            code @ 1..=LAST_VERDICT => PortMap::constant(self.cell(code)?),
            code => self.by_code.get(&code)?.clone(),
        })
    }
}

impl ProgramParts {
    fn add_element(
        &mut self,
        map: &str,
        key: &ElementKey,
        value: impl FnOnce() -> Option<SourcePortMap>,
    ) -> Option<()> {
        match (map, key) {
            (CODE_VERDICT | DROP_VERDICT | CLASS_BASE | REDIRECT, _) => {}
            (CLASS_DEFAULT, ElementKey::Exact(_)) => {
                self.default = Some(value()?.as_constant()?.clone());
            }
            (PROTO, ElementKey::Exact(bytes)) => {
                let [protocol] = read_bytes(bytes, 8)?;
                self.defaults.insert(Protocol(protocol), value()?);
            }
            (PORT | PORT_RANGE | ICMP | ICMP_RANGE, key) => {
                let (first, last) = match key {
                    ElementKey::Exact(bytes) => (bytes, bytes),
                    ElementKey::Range(first, last) => (first, last),
                    ElementKey::CatchAll => return None,
                };
                let [protocol] = read_bytes(first, 8)?;
                let number = |bytes: &[u8]| -> Option<u16> {
                    Some(match map {
                        PORT | PORT_RANGE => u16::from_be_bytes(read_bytes(bytes, 12)?),
                        _ => u16::from_be_bytes([*bytes.get(12)?, *bytes.get(16)?]),
                    })
                };
                let (first, last) = (number(first)?, number(last)?);
                let entries = self.entries.entry(Protocol(protocol)).or_default();
                let clash = entries.insert(first, (last, value()?));
                (clash.is_none() && first <= last).then_some(())?;
            }
            _ => return None,
        }
        Some(())
    }

    /// Adds what a class has by its base; it has no defaults of its own.
    fn add_base(&mut self, base: &Program) -> Option<()> {
        (self.default.is_none() && self.defaults.is_empty()).then_some(())?;
        self.default = Some(base.default().clone());
        for (protocol, map) in base.protocols() {
            let default = if protocol.has_ports() || protocol.is_icmp() {
                map.default()
            } else {
                map.get(0)
            };
            self.defaults.insert(*protocol, default.clone());
            let entries = self.entries.entry(*protocol).or_default();
            for (range, values) in map.entries() {
                let clash = entries.insert(range.first, (range.last, values.clone()));
                clash.is_none().then_some(())?;
            }
        }
        for protocol in self.entries.keys() {
            let rest = || PortMap::constant(base.default().clone());
            self.defaults.entry(*protocol).or_insert_with(rest);
        }
        Some(())
    }

    fn into_program(mut self) -> Option<Program> {
        let mut protocols = BTreeMap::new();
        for (protocol, default) in &self.defaults {
            let entries = self.entries.remove(protocol).unwrap_or_default();
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
        self.entries
            .is_empty()
            .then_some(Program::new(protocols, self.default?))
    }
}

/// The protocol, the ports and the number of an element that redirects packets.
fn redirect_element(
    config: &Config,
    key: &ElementKey,
    element: &Element,
) -> Option<(Protocol, PortRange, u32)> {
    let (protocol, range) = parse_redirect_key(key)?;
    let number = config.redirect?.number(element_number(element)?);
    (number != 0).then_some((protocol, range, number))
}

/// The elements of a class that redirect packets, by protocol and port.
fn redirect_elements(
    config: &Config,
    content: &ClassContent,
) -> Option<Vec<(Protocol, PortRange, u32)>> {
    let elements = content.elements.iter();
    elements
        .filter(|((map, _), _)| *map == REDIRECT)
        .map(|((_, key), element)| redirect_element(config, key, element))
        .collect()
}

/// The numbers of the DNS rules of a class, each once, in the order of its elements.
pub(super) fn redirect_numbers(config: &Config, content: &ClassContent) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for (_, _, number) in redirect_elements(config, content)? {
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    Some(numbers)
}

/// A program with the redirects of a class. The names are not in the kernel: each number stands for rules that no policy
/// has.
fn redirect_program(config: &Config, content: &ClassContent) -> Option<Program> {
    let plain = Cell {
        verdict: Verdict::Deny,
        causes: Vec::new(),
        log: None,
        audit: None,
        redirect: None,
    };
    let constant = |cell: &Cell| PortMap::constant(cell.clone());
    let mut protocols: BTreeMap<Protocol, Vec<(u16, SourcePortMap)>> = BTreeMap::new();
    for (protocol, range, number) in redirect_elements(config, content)? {
        let segments = protocols.entry(protocol).or_default();
        if let Some(before) = range.first.checked_sub(1)
            && segments.last().is_none_or(|(end, _)| *end < before)
        {
            segments.push((before, constant(&plain)));
        }
        let names = BTreeSet::from([DomainPattern::glob(&format!("{number}")).ok()?]);
        let rules = DnsRules {
            names,
            default: Verdict::Deny,
        };
        let cell = Cell {
            redirect: Some(Arc::new(rules)),
            ..plain.clone()
        };
        segments.push((range.last, constant(&cell)));
    }
    for segments in protocols.values_mut() {
        if segments.last().is_none_or(|(end, _)| *end < u16::MAX) {
            segments.push((u16::MAX, constant(&plain)));
        }
    }
    let protocols: Option<Vec<_>> = protocols
        .into_iter()
        .map(|(protocol, segments)| Some((protocol, PortMap::from_segments(segments)?)))
        .collect();
    Some(Program::new(protocols?, plain))
}

/// Whether a program is encoded as this content.
fn is_encoding(
    config: &Config,
    class: u32,
    content: &ClassContent,
    program: &Program,
    mut numbers: KnownNumbers<'_>,
    form: ClassForm<'_>,
) -> bool {
    let mut encoded = class_content(config, class, program, form, &mut numbers);
    encoded.chains.sort_by(|a, b| a.0.cmp(&b.0));
    let mut chains = content.chains.clone();
    chains.sort_by(|a, b| a.0.cmp(&b.0));
    encoded.elements == content.elements && encoded.chains == chains
}
